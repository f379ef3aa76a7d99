package engine

import (
	"context"
	"errors"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

var (
	// ErrVanished says that a waiting entry's node is not in the queue any
	// more.
	ErrVanished = errors.New("the waiting node vanished from the queue")

	// ErrCallOver says that the context of a call has ended while no request
	// was under way.
	ErrCallOver = errors.New("the context of the call has ended")

	// ErrInterrupted says that Call.Interrupt has ended a wait.
	ErrInterrupted = errors.New("the wait was interrupted")

	// ErrTaken is the cause of a loss if another program has removed the node.
	ErrTaken = errors.New("its node was removed from the queue by another program")

	errClosing = errors.New("the client is being closed")
	errOver    = errors.New("the entry has ended meanwhile")
)

// Loss says that an entry was granted, and was lost before its owner removed
// it.
type Loss struct {
	Node  string // the node's last name
	Cause error
}

func (l *Loss) Error() string { return l.Node + " was lost: " + l.Cause.Error() }

// Unwrap returns the cause.
func (l *Loss) Unwrap() error { return l.Cause }

// refusal is the error of a removal that the store refuses.
type refusal struct {
	node string
	err  error
}

func (r *refusal) Error() string {
	return "node " + r.node + " stays until the session ends, and blocks others until then: " + r.err.Error()
}

func (r *refusal) Unwrap() error { return r.err }

// mayPass reports whether err says that the store could not be reached or has
// not answered in time, so that another try may succeed.
func mayPass(err error) bool {
	return errors.Is(err, driver.ErrUnavailable) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// WithCause returns err. If err says that ctx was cancelled, the result matches
// the cause of ctx, too, and names it. So the error says what has cancelled ctx
// if that was not the caller.
func WithCause(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if cause == nil || !errors.Is(err, context.Canceled) || errors.Is(err, cause) {
		return err
	}
	return &causedError{err, cause}
}

// causedError is the error of a context together with the context's cause.
type causedError struct{ err, cause error }

func (e *causedError) Error() string {
	return strings.ReplaceAll(e.err.Error(), context.Canceled.Error(), e.cause.Error())
}

func (e *causedError) Unwrap() []error { return []error{e.err, e.cause} }
