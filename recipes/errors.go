package recipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"

	"github.com/dlock-go/dlock/driver"
)

// Errors to match with errors.Is. Each error message names the lock.
var (
	// ErrLocked is returned by TryLock and TryRLock if they would have to wait
	// for another contender.
	ErrLocked = errors.New("locked by another contender")

	// ErrQueueFull is returned by Lock, RLock, WithLock and WithRLock if they
	// would have to wait, and the number of contenders ahead has reached the
	// limit of WithMaxQueue. The message says how many are ahead.
	ErrQueueFull = errors.New("queue full")

	// ErrTimeout is returned if the deadline of the context or the limit of
	// WithTimeout passes before the lock is granted. The error also matches
	// context.DeadlineExceeded, and driver.ErrUnavailable if the store was not
	// reachable or a request was unanswered. The message names the holder as of
	// the last time the waiter listed the queue, perhaps long ago.
	ErrTimeout error = plainTimeout{}

	// ErrLost means that the lock was held and then lost: its session ended, or
	// an operator or another client removed its node. Another contender may
	// hold the lock by now.
	ErrLost = errors.New("lock lost")

	// ErrMaxHold means that the lock counts as lost because it was held for longer
	// than [WithMaxHold] allows. The error matches ErrLost, too.
	ErrMaxHold = errors.New("held for longer than WithMaxHold allows")

	// ErrNotHeld means that the lock was already unlocked.
	ErrNotHeld = errors.New("lock not held")

	// ErrNotRun is returned by WithLock and WithRLock if the lock was not
	// granted, so the function was not called. The error also matches the
	// reason, such as ErrTimeout.
	ErrNotRun = errors.New("the function was not called")

	// ErrNotRecorded is returned by Once and OncePer if the function succeeded,
	// but the store has not confirmed that the run is recorded. Another call may
	// run the function again.
	ErrNotRecorded = errors.New("the run was not recorded")

	// ErrUnlock is returned by Unlock, WithLock and WithRLock if the lock was
	// released but the store has not confirmed that the node is removed. The
	// node may block other contenders for a while. If the store did not answer
	// in time, the error also matches driver.ErrUnavailable, but never
	// ErrTimeout or a context error.
	ErrUnlock = errors.New("unlocked, but the store has not confirmed it")

	// ErrUpgrade is returned if the holder of a shared lock asks for it
	// exclusively. Waiting would deadlock.
	ErrUpgrade = errors.New("a shared lock cannot become exclusive")

	// ErrNoLeader is returned by [Election.Leader] if nobody leads.
	ErrNoLeader = errors.New("no leader")

	// ErrClosed is returned by all calls on a closed client and its locks, and
	// by calls for a lock once Client.Shutdown has begun.
	ErrClosed = errors.New("client closed")

	// ErrGone is returned by [RWMutex.Remove] if the contender has left the queue.
	ErrGone = driver.ErrGone

	// ErrBadName is returned by every use of a lock with an invalid name; see
	// [Client.RWMutex].
	ErrBadName = driver.ErrBadName
)

type plainTimeout struct{}

func (plainTimeout) Error() string        { return "timed out" }
func (plainTimeout) Timeout() bool        { return true }
func (plainTimeout) Is(target error) bool { return target == context.DeadlineExceeded }

func lockError(lock string, err error) error { return &namedError{lock, err} }

type namedError struct {
	lock string
	err  error
}

func (e *namedError) Error() string { return "dlock: " + printable(e.lock) + ": " + e.err.Error() }
func (e *namedError) Unwrap() error { return e.err }

// errNoAnswer is reported if time runs out while a request is in flight.
var errNoAnswer = fmt.Errorf("%w: no answer", driver.ErrUnavailable)

func unavailable(err error) error {
	if errors.Is(err, driver.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

// masked wraps an error and keeps it from matching certain other errors.
type masked struct {
	err error
	not []error // not matched by errors.Is
}

func (e *masked) Error() string { return e.err.Error() }

func (e *masked) Is(target error) bool {
	return !slices.Contains(e.not, target) && errors.Is(e.err, target)
}

func (e *masked) As(target any) bool { return errors.As(e.err, target) }

func mask(err error, not ...error) error {
	if slices.ContainsFunc(not, func(target error) bool { return errors.Is(err, target) }) {
		return &masked{err, not}
	}
	return err
}

// unlockError hides context errors, because the time limit that expired is
// Unlock's, not the caller's.
func unlockError(lock string, cause error) error {
	cause = mask(cause, ErrTimeout, context.DeadlineExceeded, context.Canceled)
	return lockError(lock, fmt.Errorf("%w: %w", ErrUnlock, cause))
}

type timeoutError struct {
	lock   string
	after  time.Duration
	holder string        // the holder's node; empty if unknown
	mine   bool          // whether this client holds the lock
	asOf   time.Duration // age of the holder's name; zero if current
	ahead  int           // number of nodes ahead in the queue
	last   error         // last error of the store, or nil
}

func (e *timeoutError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "dlock: %s: timed out after %v", printable(e.lock), e.after)
	switch {
	case e.holder == "":
		b.WriteString(" before it had a place in the queue")
	case e.mine:
		fmt.Fprintf(&b, ": held by this client (%s), %d ahead", printable(e.holder), e.ahead)
	case e.asOf > 0:
		fmt.Fprintf(&b, ": held by %s as of %v ago, %d ahead", printable(e.holder), e.asOf, e.ahead)
	default:
		fmt.Fprintf(&b, ": held by %s, %d ahead", printable(e.holder), e.ahead)
	}
	if e.last != nil {
		fmt.Fprintf(&b, " (last error: %v)", e.last)
	}
	return b.String()
}

func (e *timeoutError) Timeout() bool { return true }

func (e *timeoutError) Unwrap() []error {
	if e.last == nil {
		return []error{ErrTimeout}
	}
	return []error{ErrTimeout, e.last}
}

type lostError struct {
	lock, node string
	mode       Mode // how the lock was held at the loss
	cause      error
}

func (e *lostError) Error() string {
	return fmt.Sprintf("dlock: %s: %s: %v: %v", printable(e.lock), printable(e.node), ErrLost, e.cause)
}

func (e *lostError) Unwrap() []error { return []error{ErrLost, e.cause} }

// join combines the non-nil errors into one that matches everything they match.
func join(errs ...error) error {
	all := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	// Not multierror.Append, which would flatten an error that is a multierror.
	return &multierror.Error{Errors: all, ErrorFormat: func(errs []error) string {
		texts := make([]string, len(errs))
		for i, err := range errs {
			texts[i] = err.Error()
		}
		return strings.Join(texts, "; ")
	}}
}

// maxPrinted limits the length of names in messages, in bytes. Names made by
// dlock are shorter.
const maxPrinted = 1024

func printable(name string) string {
	if len(name) > maxPrinted {
		const end = 32 // enough for the sequence in a name
		return fmt.Sprintf("%q...%q (%d bytes)", name[:maxPrinted-end], name[len(name)-end:], len(name))
	}
	if q := strconv.Quote(name); len(q) != len(name)+2 {
		return q
	}
	return name
}

func ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return strconv.Itoa(n) + suffix
}
