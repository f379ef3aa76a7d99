package session

import (
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/driver"
)

// Refused marks the error of a change that was not made and never will be. It
// does not change the text.
func Refused(err error) error { return refused{err} }

type refused struct{ error }

func (r refused) Unwrap() error { return r.error }

// unknownOutcome reports whether a change may have been made, or may still be,
// despite err.
func unknownOutcome(err error) bool {
	return err != nil && !errors.As(err, new(refused)) && !errors.Is(err, driver.ErrGone) &&
		!errors.Is(err, driver.ErrStale) && !errors.Is(err, driver.ErrSessionEnded) && !errors.Is(err, errors.ErrUnsupported)
}

// explain returns the error of a call.
func (s *Session) explain(what, queue string, err error) error {
	if ended := s.lease.Err(); ended != nil {
		return ended
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s in %q: %w", s.Name, what, queue, err)
}

// inTime replaces the error of a request that has met the time limit of its
// own, ctx, because the caller must not take it for the end of its own context.
func inTime(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%w: no answer in time", driver.ErrUnavailable)
}
