package recipes

import (
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/driver"
)

// RWMutex is a read-write lock that all clients of a store share under one
// name. Any number of contenders hold it shared, or one holds it exclusively.
// It is granted in the order of arrival. A reader that arrives after a waiting
// writer waits behind that writer, so that readers do not starve a writer. A hold
// has no time limit.
//
// An RWMutex keeps no state: two RWMutexes of one name are the same lock, and
// each call of Lock is a contender of its own. An RWMutex is safe for use by
// many goroutines.
//
// An RWMutex comes from a client. The zero value and nil belong to no client:
// every use of them returns an error that matches [ErrClosed].
type RWMutex struct {
	_     noCopy
	queue *queue // nil in the zero value
}

// What readers and writers ask of the queue.
var (
	reader = &want{kind: sharedKind, rule: behindWriter}
	writer = &want{kind: exclusiveKind, rule: behindAll, exclusive: true, downgraded: reader}
)

// behindAll is the rule for writers: a writer waits for the node just before its
// own.
func behindAll(ahead []driver.Node) []driver.Node { return ahead[max(0, len(ahead)-1):] }

// behindWriter is the rule for readers: a reader waits for the last writer
// before it.
func behindWriter(ahead []driver.Node) []driver.Node {
	for i := len(ahead) - 1; i >= 0; i-- {
		if !isReader(ahead[i]) {
			return ahead[i : i+1]
		}
	}
	return nil
}

// wantOf returns what the contender of a listed node asks of the queue.
func wantOf(n driver.Node) *want {
	if isReader(n) {
		return reader
	}
	return writer
}

// mode returns the Mode that hooks report for a contender.
func (w *want) mode() Mode {
	if w.exclusive {
		return Exclusive
	}
	return Shared
}

// RWMutex returns the read-write lock of that name. It does no I/O.
//
// A name is one or more segments with slashes between them, such as "stock/42".
// It has at most 512 bytes of printable UTF-8. A segment is not empty, not "."
// and not ".."; any other segment is allowed, also "order-1234567890" or a
// UUID. Locks of different names never block each other, even if one name is
// the beginning of the other. If the name breaks these rules, every use of the
// lock returns an error that matches [ErrBadName].
//
// The options are applied after those of the client, for this RWMutex only.
func (c *Client) RWMutex(name string, opts ...Option) *RWMutex {
	return &RWMutex{queue: newQueue(c.opened(), name, opts)}
}

// Lock waits until it holds the lock exclusively.
//
// It returns one of these errors:
//
//   - [ErrTimeout] if the deadline of ctx or the time of [WithTimeout] has
//     passed. The error matches driver.ErrUnavailable, too, if the store did not
//     answer by then.
//   - the error of ctx if ctx was cancelled.
//   - [ErrClosed] if the client was closed.
//   - [ErrUpgrade] if ctx belongs to a shared lock of this name.
//   - the error of the store if it will not pass, or has not passed for as long
//     as [WithBackOff] allows.
//
// After an error the contender's node is removed. If the store does not answer
// within 50 ms, that happens in the background.
//
// If the session ends while Lock waits, Lock joins the queue again, at its end,
// on a new session. With a context of [Lock.Context], Lock takes the same lock
// again: see there.
func (m *RWMutex) Lock(ctx context.Context) (*Lock, error) {
	return m.lock(ctx, writer, false)
}

// RLock waits until it holds the lock shared. Otherwise it is like Lock, but it
// never returns [ErrUpgrade].
func (m *RWMutex) RLock(ctx context.Context) (*Lock, error) {
	return m.lock(ctx, reader, false)
}

// TryLock is like Lock, but does not wait for other contenders. If another
// contender holds the lock or waits for it, TryLock returns [ErrLocked].
//
// If several calls meet at a free lock, the one whose node is first takes it, and
// the others return ErrLocked. All of them fail only if the store does not answer
// the first one, or if that one loses its session or node. TryLock may also return
// ErrLocked although no contender holds the lock: while the node of a call that
// has failed is being removed, or if the server that it asks has not received the
// last Unlock yet.
//
// TryLock waits for the store, as long as ctx and [WithTimeout] allow. It makes
// each request only once:
//
//   - one attempt to connect. The driver limits it, as zkdriver does by
//     connect_timeout, or else it ends after 30 s. If the last attempt failed, a
//     pause of up to 2 s comes first.
//   - one List and one Create, and another List if the node is not known to be
//     alone.
//
// If a request fails, TryLock returns the error, which matches
// driver.ErrUnavailable if it may pass. [WithBackOff] has no effect. TryLock
// tries once more only if the session turns out to have ended, or the new node
// to be gone.
func (m *RWMutex) TryLock(ctx context.Context) (*Lock, error) {
	return m.lock(ctx, writer, true)
}

// TryRLock is like RLock, but does not wait for other contenders. It returns
// [ErrLocked] if a writer holds the lock or waits for it. See TryLock.
func (m *RWMutex) TryRLock(ctx context.Context) (*Lock, error) {
	return m.lock(ctx, reader, true)
}

// WithLock calls f while it holds the lock exclusively, and unlocks. If f
// panics, WithLock unlocks, and the panic goes on.
//
// The context of f is one of [Lock.Context]. It is cancelled when the lock is
// lost, with a cause that matches [ErrLost]. A call that locks with this
// context takes the same lock again, so that goroutines that share the context
// do not exclude each other.
//
// The error says how far the call has come:
//
//	nil         f has returned nil, and the lock was given back.
//	ErrNotRun   The lock was not granted and f was not called. The error matches
//	            that of Lock, too.
//	ErrLost     f has returned, but the lock was lost before that. Or f returned
//	            the ErrLost of another lock.
//	ErrUnlock   f has returned while the lock was held. The lock was given back,
//	            but its node stays for a while.
//	any other   It is the error of f. The lock was held to the end and given back.
//
// ErrLost and ErrUnlock are joined to the error of f, even if that is nil. The
// result matches what the error of f matches, except ErrNotRun and ErrUnlock: f
// may have got these two from another lock, and they would be mistaken for
// errors of this lock.
func (m *RWMutex) WithLock(ctx context.Context, f func(ctx context.Context) error) error {
	return m.with(ctx, writer, f)
}

// WithRLock calls f while it holds the lock shared, and unlocks. Otherwise it
// is like WithLock.
func (m *RWMutex) WithRLock(ctx context.Context, f func(ctx context.Context) error) error {
	return m.with(ctx, reader, f)
}

func (m *RWMutex) lock(ctx context.Context, w *want, try bool) (*Lock, error) {
	if m.fromNoClient() {
		return nil, errNoClient
	}
	return m.queue.acquire(ctx, w, try)
}

func (m *RWMutex) with(ctx context.Context, w *want, f func(ctx context.Context) error) error {
	err := m.valid(ctx)
	if err == nil && f == nil {
		err = lockError(m.queue.name, errors.New("nil function"))
	}
	var l *Lock
	if err == nil {
		l, err = m.queue.acquire(ctx, w, false)
	}
	if err != nil {
		return bothError{err, ErrNotRun}
	}
	return l.do(ctx, f)
}

// do unlocks also if f panics or ends the goroutine.
func (l *Lock) do(ctx context.Context, f func(ctx context.Context) error) (err error) {
	defer func() {
		if unlock := l.Unlock(); unlock != nil {
			err = join(err, unlock)
		}
	}()
	return mask(f(l.Context(ctx)), ErrNotRun, ErrUnlock) // f may have got these errors from another lock
}

// Name returns the lock's name.
func (m *RWMutex) Name() string {
	if m.fromNoClient() {
		return ""
	}
	return m.queue.name
}

// String returns the lock's name, quoted if it would not print.
func (m *RWMutex) String() string {
	if m.fromNoClient() {
		return "no lock"
	}
	return printable(m.queue.name)
}

// GoString returns "dlock.RWMutex(...)" with the result of String in the
// brackets.
func (m *RWMutex) GoString() string { return "dlock.RWMutex(" + m.String() + ")" }

// errNoClient is the error of an RWMutex that is the zero value or nil.
var errNoClient = fmt.Errorf("dlock: this RWMutex comes from no client (use Client.RWMutex): %w", ErrClosed)

func (m *RWMutex) fromNoClient() bool { return m == nil || m.queue == nil }

// valid returns why a call with that context cannot use the lock, or nil.
func (m *RWMutex) valid(ctx context.Context) error {
	if m.fromNoClient() {
		return errNoClient
	}
	return m.queue.usable(ctx)
}
