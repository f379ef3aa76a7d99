package demo

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock"
)

// betweenTries is the time between two attempts to connect.
const betweenTries = 50 * time.Millisecond

// connect returns nil once the worker has a session. It tries again while ctx lasts and the error may pass: many
// who connect at once may meet a server that is busy. When ctx has ended the worker is of no use any more.
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

// connectError returns the reason for a connection that did not come about in time. An attempt that is under way
// tells it when it is called off.
func (w *worker) connectError(err error) error {
	_ = w.locker.Close() // says the same when the workers is dismissed
	select {
	case reason := <-w.noSession:
		return reason
	default:
		return err
	}
}

// connected keeps the error of the last attempt to connect. One attempt is made at a time.
func (w *worker) connected(_ context.Context, info dlock.ConnectedInfo) {
	select {
	case <-w.noSession:
	default:
	}
	if info.Err != nil {
		w.noSession <- info.Err // there is room
	}
}
