package entry

import (
	"context"
	"errors"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

var (
	// ErrVanished means that a waiting entry's node is no longer in the queue.
	ErrVanished = errors.New("the waiting node vanished from the queue")

	// ErrCallOver means that the call's context ended between two requests.
	ErrCallOver = errors.New("the context of the call has ended")

	// ErrTaken is the cause of a loss if another program removed the node.
	ErrTaken = errors.New("its node was removed from the queue by another program")

	errClosing = errors.New("the client is being closed")
	errOver    = errors.New("the entry has ended meanwhile")
)

// Loss says why a granted entry was lost before its owner removed it.
type Loss struct {
	Node  string // the latest name of the node
	Cause error
}

func (l *Loss) Error() string { return l.Node + " was lost: " + l.Cause.Error() }

// Unwrap returns the cause.
func (l *Loss) Unwrap() error { return l.Cause }

// refusal is the error of a removal that the store refused for good.
type refusal struct {
	node string
	err  error
}

func (r *refusal) Error() string {
	return "node " + r.node + " stays until the session ends, and blocks others until then: " + r.err.Error()
}

func (r *refusal) Unwrap() error { return r.err }

// mayPass reports whether a request that failed with err is worth retrying.
func mayPass(err error) bool {
	return errors.Is(err, driver.ErrUnavailable) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// WithCause adds the cause of ctx to err if err reports that ctx was cancelled,
// so that the error says who cancelled it.
func WithCause(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if cause == nil || !errors.Is(err, context.Canceled) || errors.Is(err, cause) {
		return err
	}
	return &causedError{err, cause}
}

// causedError is a context error that also matches the context's cause.
type causedError struct{ err, cause error }

func (e *causedError) Error() string {
	return strings.ReplaceAll(e.err.Error(), context.Canceled.Error(), e.cause.Error())
}

func (e *causedError) Unwrap() []error { return []error{e.err, e.cause} }
