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

// Errors to match with errors.Is. Every error names the lock that it is about.
var (
	// ErrLocked is returned by TryLock and TryRLock if they would have to wait
	// for another contender.
	ErrLocked = errors.New("locked by another contender")

	// ErrTimeout is returned if the deadline of the context or the time of
	// WithTimeout has passed before the lock was granted. The error also
	// matches context.DeadlineExceeded. It matches driver.ErrUnavailable, too,
	// if by then the store could not be reached or had not answered a request.
	// Its message names the holder that the waiter saw when it last listed the
	// queue. A waiter at the end of a long queue lists it seldom.
	ErrTimeout error = timeout{}

	// ErrLost means that the lock was held and then lost, because its session
	// ended or because its node was removed by an operator or another client.
	// Another contender may hold the lock by now.
	ErrLost = errors.New("lock lost")

	// ErrNotHeld means that the lock is not held any more, because it was
	// unlocked.
	ErrNotHeld = errors.New("lock not held")

	// ErrNotRun is returned by WithLock and WithRLock if the lock was not
	// granted, so that the function was not called. The error also matches what
	// Lock or RLock returned.
	ErrNotRun = errors.New("the function was not called")

	// ErrUnlock is returned by Unlock, WithLock and WithRLock if the lock was
	// held to the end and given back, but the store has not confirmed that its
	// node is removed. The node may block other contenders for a while. If the
	// reason is that the store did not answer in time, the error matches
	// driver.ErrUnavailable, and neither ErrTimeout nor an error of a context.
	ErrUnlock = errors.New("unlocked, but the store has not confirmed it")

	// ErrUpgrade is returned to a caller that holds the lock shared and wants
	// it exclusively. To wait for that would be a deadlock.
	ErrUpgrade = errors.New("a shared lock cannot become exclusive")

	// ErrClosed is returned by every call of a closed client, of its locks
	// included.
	ErrClosed = errors.New("client closed")

	// ErrBadName is returned by every use of a lock whose name breaks the rules
	// of [Client.RWMutex].
	ErrBadName = driver.ErrBadName
)

type timeout struct{}

func (timeout) Error() string        { return "timed out" }
func (timeout) Timeout() bool        { return true }
func (timeout) Is(target error) bool { return target == context.DeadlineExceeded }

// lockError says which lock an error is about.
func lockError(lock string, err error) error { return &namedError{lock, err} }

type namedError struct {
	lock string
	err  error
}

func (e *namedError) Error() string { return "dlock: " + printable(e.lock) + ": " + e.err.Error() }
func (e *namedError) Unwrap() error { return e.err }

// errNoAnswer takes the place of the store's error if the time of a call ran
// out while a request was under way.
var errNoAnswer = fmt.Errorf("%w: no answer", driver.ErrUnavailable)

// unavailable returns an error that matches err and driver.ErrUnavailable.
func unavailable(err error) error {
	if errors.Is(err, driver.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

// masked hides some of the targets that err matches.
type masked struct {
	err error
	not []error
}

func (e *masked) Error() string { return e.err.Error() }

func (e *masked) Is(target error) bool {
	return !slices.Contains(e.not, target) && errors.Is(e.err, target)
}

func (e *masked) As(target any) bool { return errors.As(e.err, target) }

// mask returns err with the same text, without matching the targets in not.
func mask(err error, not ...error) error {
	if slices.ContainsFunc(not, func(target error) bool { return errors.Is(err, target) }) {
		return &masked{err, not}
	}
	return err
}

// unlockError returns an error that matches ErrUnlock and cause, but no error
// of a context: the limit that has passed is that of Unlock, not the caller's.
func unlockError(lock string, cause error) error {
	cause = mask(cause, ErrTimeout, context.DeadlineExceeded, context.Canceled)
	return lockError(lock, fmt.Errorf("%w: %w", ErrUnlock, cause))
}

// timeoutError says who holds the lock that a call has timed out for.
type timeoutError struct {
	lock   string
	after  time.Duration
	holder string        // the holder's node; empty if the call had no node itself
	mine   bool          // whether this client is the holder
	asOf   time.Duration // how long ago the holder was seen; 0 if its node is watched
	ahead  int           // number of nodes before the call's own
	last   error         // the last error of the store, or nil
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

// lostError matches ErrLost and its cause.
type lostError struct {
	lock, node string
	cause      error
}

func (e *lostError) Error() string {
	return fmt.Sprintf("dlock: %s: %s: %v: %v", printable(e.lock), printable(e.node), ErrLost, e.cause)
}

func (e *lostError) Unwrap() []error { return []error{ErrLost, e.cause} }

// join returns an error that matches all targets of the errors that are not
// nil.
func join(errs ...error) error {
	all := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	// This does not use multierror.Append, which would take apart an error that
	// is itself a multierror.
	return &multierror.Error{Errors: all, ErrorFormat: oneLine}
}

func oneLine(errs []error) string {
	texts := make([]string, len(errs))
	for i, err := range errs {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// maxPrinted is the length in bytes from which printable cuts a name. Every
// name that dlock makes is shorter.
const maxPrinted = 1024

// printable returns a name for messages, which any client of the store may have
// chosen. It quotes a name that would not print, and cuts one that is too long.
func printable(name string) string {
	if len(name) > maxPrinted {
		const end = 32 // how many bytes at the end of the name are kept, the sequence among them
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
