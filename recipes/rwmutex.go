package recipes

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock/driver"
)

// RWMutex is a read-write lock shared under one name by all clients of a store.
// It is held by any number of readers or by one writer. It is granted in order
// of arrival, so readers cannot starve writers. A hold has no time limit,
// except with [WithMaxHold].
//
// An RWMutex has no state: two RWMutexes of one name are the same lock, and
// every call of Lock contends separately. It is safe for concurrent use.
// RWMutexes come from [Client.RWMutex].
type RWMutex struct {
	_     noCopy
	queue *queue
}

const lockRecipe = "lock"

var (
	reader = &want{kind: sharedKind, rule: behindWriter, holds: tally.onlyReaders}
	writer = &want{kind: exclusiveKind, rule: behindAll, holds: tally.empty, exclusive: true, downgraded: reader}
)

// tally counts the nodes ahead of a contender. It grows node by node, so that
// want.holds finds all holders in one pass over a queue.
type tally struct{ nodes, readers, sharers, units int }

func (t *tally) add(n driver.Node) {
	t.nodes++
	if isReader(n) {
		t.readers++
	} else if u, ok := unitsOf(n); ok {
		t.sharers++
		t.units += u.weight
	}
}

func (t tally) empty() bool       { return t.nodes == 0 }
func (t tally) onlyReaders() bool { return t.nodes == t.readers }

// behindAll is the queueing rule for writers, who wait for the node just ahead.
func behindAll(ahead []driver.Node) []driver.Node { return ahead[max(0, len(ahead)-1):] }

// behindWriter is the queueing rule for readers: they wait for the last writer.
func behindWriter(ahead []driver.Node) []driver.Node {
	for i := len(ahead) - 1; i >= 0; i-- {
		if !isReader(ahead[i]) {
			return ahead[i : i+1]
		}
	}
	return nil
}

// wantOf tells from the name of node n what its contender requests.
func wantOf(n driver.Node) *want {
	if isReader(n) {
		return reader
	}
	if u, ok := unitsOf(n); ok {
		return u.want()
	}
	return writer
}

func (w *want) mode() Mode {
	if w.exclusive {
		return Exclusive
	}
	return Shared
}

// RWMutex returns the read-write lock of the given name. It does no I/O.
//
// A name is one or more segments separated by slashes, such as "stock/42", of
// at most 512 bytes of printable UTF-8 in all. A segment must not be empty, "."
// or "..". Locks of different names never block each other. With an invalid
// name, every use of the lock returns an error that matches [ErrBadName].
//
// The options apply to this RWMutex only, after those of the client.
func (c *Client) RWMutex(name string, opts ...Option) *RWMutex {
	return &RWMutex{queue: newQueue(c, lockRecipe, name, opts)}
}

// Lock waits until it holds the lock exclusively.
//
// It returns one of these errors:
//
//   - [ErrTimeout] if the deadline of ctx or the time of [WithTimeout] has
//     passed.
//   - the error of ctx if ctx was cancelled.
//   - [ErrQueueFull] if the queue is longer than [WithMaxQueue] allows.
//   - [ErrClosed] if the client was closed, or [Client.Shutdown] has begun.
//   - [ErrUpgrade] if ctx belongs to a shared lock of this name.
//   - the error of the store if it is permanent, or has lasted for as long as
//     [WithBackOff] allows.
//
// On error the contender's node is removed, in the background if the store does
// not answer within 50 ms.
//
// If the session ends while Lock waits, Lock rejoins the queue at its end, on a
// new session. With a context of [Lock.Context], Lock re-enters the lock.
func (m *RWMutex) Lock(ctx context.Context) (*Lock, error) {
	return m.queue.acquire(ctx, writer, false)
}

// RLock is like Lock, but acquires the lock shared. It never returns
// [ErrUpgrade].
func (m *RWMutex) RLock(ctx context.Context) (*Lock, error) {
	return m.queue.acquire(ctx, reader, false)
}

// TryLock is like Lock, but does not wait for other contenders. If another
// contender holds the lock or waits for it, TryLock returns [ErrLocked].
//
// If several calls meet at a free lock, the call whose node is first takes it,
// unless it gets no answer from the store, or loses its session or node.
// TryLock may also return ErrLocked while the node of a failed call is being
// removed, or if it asks a server that has not received the last Unlock yet.
//
// TryLock waits for the store, as long as ctx and [WithTimeout] allow. It makes
// each request only once:
//
//   - one attempt to connect, which ends after 30 s unless the driver has a
//     shorter limit, such as connect_timeout of zkdriver. If the last attempt
//     failed, a pause of up to 2 s comes first.
//   - one List and one Create, and another List if the node is not known to be
//     alone.
//
// If a request fails, TryLock returns the error, which matches
// driver.ErrUnavailable if a later call may succeed. [WithBackOff] has no
// effect. TryLock tries once more only if the session turns out to have ended,
// or the new node to be gone.
func (m *RWMutex) TryLock(ctx context.Context) (*Lock, error) {
	return m.queue.acquire(ctx, writer, true)
}

// TryRLock is like RLock, but does not wait for other contenders. It returns
// [ErrLocked] if a writer holds the lock or waits for it. See TryLock.
func (m *RWMutex) TryRLock(ctx context.Context) (*Lock, error) {
	return m.queue.acquire(ctx, reader, true)
}

// WithLock calls f while holding the lock exclusively, and then unlocks, even
// if f panics.
//
// The context passed to f is a [Lock.Context] of l, the Lock: it is cancelled
// when the lock is lost, and taking the same lock with it is a re-entry. If f
// unlocks l itself, WithLock returns [ErrNotHeld].
//
// The error tells what happened:
//
//	nil         f has returned nil, and the lock was given back.
//	ErrNotRun   The lock was not granted and f was not called. The error matches
//	            that of Lock, too.
//	ErrLost     The lock was lost before f returned. Or f returned the ErrLost of
//	            another lock.
//	ErrUnlock   f has returned while the lock was held. The lock was given back,
//	            but its node stays for a while.
//	any other   It is the error of f. The lock was held to the end and given back.
//
// ErrLost and ErrUnlock are joined to the error of f, even if that is nil.
// An ErrNotRun or ErrUnlock that f returns is not matched, because it belongs
// to another lock.
func (m *RWMutex) WithLock(ctx context.Context, f func(ctx context.Context, l *Lock) error) error {
	return m.withLock(ctx, writer, f)
}

// WithRLock is like WithLock, but holds the lock shared.
func (m *RWMutex) WithRLock(ctx context.Context, f func(ctx context.Context, l *Lock) error) error {
	return m.withLock(ctx, reader, f)
}

func (m *RWMutex) withLock(ctx context.Context, w *want, f func(ctx context.Context, l *Lock) error) error {
	err := m.queue.usable(ctx)
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

// do calls f and unlocks, even if f panics or ends the goroutine.
func (l *Lock) do(ctx context.Context, f func(ctx context.Context, l *Lock) error) (err error) {
	defer func() {
		if unlock := l.Unlock(); unlock != nil {
			err = join(err, unlock)
		}
	}()
	return mask(f(l.Context(ctx), l), ErrNotRun, ErrUnlock) // those of f are about another lock
}

// Name returns the lock's name.
func (m *RWMutex) Name() string {
	return m.queue.name
}

// String returns the lock's name, quoted if unprintable.
func (m *RWMutex) String() string {
	return printable(m.queue.name)
}

// GoString describes the lock as String does, for the verb %#v.
func (m *RWMutex) GoString() string { return "dlock.RWMutex(" + m.String() + ")" }
