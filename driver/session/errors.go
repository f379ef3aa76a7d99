package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/dlock-go/dlock/driver"
)

// Refused marks err as the error of a change that was not made and never will
// be. It does not change the text.
func Refused(err error) error { return refused{err} }

type refused struct{ error }

func (r refused) Unwrap() error { return r.error }

// ErrLost is the error of a request that finds that the store has lost the data
// with which the session began.
var ErrLost = fmt.Errorf("%w: %w", driver.ErrSessionEnded, driver.ErrLostData)

// Login marks the error of a connection that failed because of a password, a
// certificate or their files. If they have been right before (see [Trust]), the
// error also matches driver.ErrUnavailable, because somebody may be about to
// replace them. Login does not change the text.
func Login(err error) error { return login{err} }

type login struct{ error }

func (l login) Unwrap() error { return l.error }

// replaced makes an error marked by [Login] match driver.ErrUnavailable.
func replaced(err error) error {
	if err != nil && errors.As(err, new(login)) && !errors.Is(err, driver.ErrUnavailable) {
		return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	return err
}

// Trust remembers whether a session of a connector has begun, which proves that
// the password and certificates were right. The zero Trust has seen none.
type Trust struct{ begun atomic.Bool }

// Result records a success, and returns what the connector's method returns.
// Its arguments are the results of [Connect] or [Observe], or an earlier error.
func (t *Trust) Result(s *Session, err error) (driver.Session, error) {
	if err == nil {
		t.begun.Store(true)
		return s, nil
	}
	if t.begun.Load() {
		err = replaced(err)
	}
	return nil, err
}

// unknownOutcome reports whether a change may have been made despite err, or
// may still be made.
func unknownOutcome(err error) bool {
	return err != nil && !errors.As(err, new(refused)) && !errors.Is(err, driver.ErrGone) &&
		!errors.Is(err, driver.ErrStale) && !errors.Is(err, driver.ErrSessionEnded) && !errors.Is(err, errors.ErrUnsupported)
}

// explain adds the operation and queue to err, or returns the lease's error.
func (s *Session) explain(what, queue string, err error) error {
	if ended := s.lease.Err(); ended != nil {
		return ended
	}
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s in %q: %w", s.config.Name, what, queue, err)
}

// inTime hides the context errors of time limits, which a caller would take for
// the end of its own ctx.
func inTime(err error) error {
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return err
	}
	text := strings.TrimPrefix(err.Error(), driver.ErrUnavailable.Error()+": ")
	if text == context.DeadlineExceeded.Error() {
		text = "no answer in time"
	}
	late := fmt.Errorf("%w: %s", driver.ErrUnavailable, text)
	if errors.As(err, new(refused)) {
		return Refused(late)
	}
	return late
}

// CheckLayout returns an error unless the data of a store have the layout that
// this program needs. In the error, the argument what names the data, which the
// user may delete to begin anew. The error does not match
// driver.ErrUnavailable, because a retry would not help.
func CheckLayout[T comparable](what string, found, own T) error {
	if found == own {
		return nil
	}
	return fmt.Errorf("%s have layout %v, and this version of dlock needs layout %v: use one version in all programs, "+
		"or stop them all and delete these, which the next client makes anew", what, found, own)
}
