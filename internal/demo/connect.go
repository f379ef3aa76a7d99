package demo

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock"
)

// betweenTries is the pause between two attempts to connect.
const betweenTries = 50 * time.Millisecond

// connect returns nil once the worker has a session. It tries again as long as
// the error may pass, because a server may be busy when many workers connect at
// once. After an error the worker cannot be used any more.
func (w *worker) connect(ctx context.Context) error {
	for {
		err := w.locker.Ping(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return w.connectError(err)
		case !errors.Is(err, dlock.ErrUnavailable) || !pause(ctx, betweenTries, nil):
			return err
		}
	}
}

// connectError returns why the worker has no session. It is called when the
// time for connecting is over. It closes the client, so that an attempt to
// connect that is still in progress ends and reports its error.
func (w *worker) connectError(err error) error {
	_ = w.locker.Close() // this drops the error, because workers.close gets it as well
	select {
	case reason := <-w.noSession:
		return reason
	default:
		return err
	}
}

// connected is a hook that keeps the error of the last attempt to connect. A
// client makes one attempt at a time.
func (w *worker) connected(_ context.Context, info dlock.ConnectedInfo) {
	select {
	case <-w.noSession:
	default:
	}
	if info.Err != nil {
		w.noSession <- info.Err // does not block: the channel was emptied above
	}
}
