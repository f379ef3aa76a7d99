package recipes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// RWMutex is a read-write lock that all clients of a store share under one name. Any number of
// contenders hold it shared, or one holds it exclusively. It is granted in the order of
// arrival: a reader that arrives after a waiting writer waits behind it, so that nobody
// starves.
//
// An RWMutex keeps no state: two of one name are the same lock, and each call of Lock is a
// contender of its own. It is safe for use by many goroutines.
//
// An RWMutex comes from a client. The zero value belongs to none: every use of it returns an
// error that matches ErrClosed.
type RWMutex struct {
	_       noCopy
	client  *Client
	name    string
	options options
	err     error // why the lock cannot be used
	notHeld error // what an unlocked Lock says
	key     any   // of its holds in contexts
}

// RWMutex returns the read-write lock of that name. It does no I/O.
//
// A name is one or more segments with slashes between them, such as "stock/42".
// It has at most 512 bytes of printable UTF-8. A segment is not empty, not "."
// and not ".."; any other segment is allowed, also "order-1234567890" or a UUID.
// Locks of different names never block each other, even if one name is the
// beginning of the other. If the name breaks these rules, every use of the lock
// returns an error that matches [ErrBadName].
//
// The options are applied after those of the client, for this RWMutex only.
func (c *Client) RWMutex(name string, opts ...Option) *RWMutex {
	c = c.opened()
	m := &RWMutex{
		client:  c,
		name:    name,
		options: c.options.with(opts),
		key:     holdsKey{c, name},
		notHeld: lockError(name, ErrNotHeld),
	}
	if err := cmp.Or(driver.CheckQueue(name), m.options.recordErr); err != nil {
		m.err = lockError(name, err)
	}
	return m
}

// Lock waits until it holds the lock exclusively.
//
// It gives up with ErrTimeout when the deadline of ctx or the time of
// [WithTimeout] has passed (the error matches driver.ErrUnavailable, too, if
// the store was not answering by then), with the error of ctx when that is
// cancelled, with ErrClosed when the client is closed, and with the error of
// the store if that will not pass or has not passed as long as [WithBackOff]
// allows. Nothing stays behind then: the contender's node is removed, in the
// background if the store does not answer within 50 ms.
//
// Waiting outlives a session: when it ends, Lock joins the queue again on a new one. With a
// context from [Lock.Context] it enters again, see there; somebody who holds the lock shared
// gets ErrUpgrade.
func (m *RWMutex) Lock(ctx context.Context) (*Lock, error) {
	return m.lock(ctx, attempt{mode: Exclusive})
}

// RLock waits until it holds the lock shared. In all else it is as Lock.
func (m *RWMutex) RLock(ctx context.Context) (*Lock, error) {
	return m.lock(ctx, attempt{mode: Shared})
}

// TryLock is Lock for somebody who will not wait for others: if anybody is in the way it
// returns ErrLocked at once. It may also do so when nobody holds the lock: when two of them meet,
// or when the server that is asked has not heard of the last Unlock yet.
//
// It does wait for the store, as long as ctx and WithTimeout allow, but asks only
// once for each step: one attempt to connect (limited by the driver, such as by
// connect_timeout of zkdriver, or to 30 s; up to 2 s pass before it if the last
// one failed), one List, one Create, and another List if the node is not known
// to be alone. If a step fails, TryLock returns the error. An error that may
// pass matches driver.ErrUnavailable. WithBackOff has no part in it. Only if the
// session turns out to have ended, or the new node to be gone, is there one more
// try.
func (m *RWMutex) TryLock(ctx context.Context) (*Lock, error) {
	return m.lock(ctx, attempt{mode: Exclusive, try: true})
}

// TryRLock is RLock for somebody who will not wait for others; see TryLock.
func (m *RWMutex) TryRLock(ctx context.Context) (*Lock, error) {
	return m.lock(ctx, attempt{mode: Shared, try: true})
}

// WithLock calls f while it holds the lock exclusively, and unlocks.
//
// f's context is one of [Lock.Context]: it is cancelled when the lock is lost, with a cause
// that matches ErrLost, and whoever uses it enters the lock again, so that goroutines which
// share it are inside together. A panic in f unlocks and goes on.
//
// The error tells how far the call has got:
//
//	nil             f has returned nil, and the lock is given back
//	ErrNotRun       f was not called; the error matches that of Lock, too
//	ErrLost         f has returned, but the lock was lost before, or another lock that f used
//	ErrUnlock  f has returned under the lock, which is given back; but its node stays for a while
//	else            f's error; the lock was held to the end, and is given back
//
// ErrLost and ErrUnlock are joined to the error of f, also to nil. The error
// of f matches whatever f returned, except ErrNotRun and ErrUnlock: f may
// have them of another lock, and they would be read as said of this one.
func (m *RWMutex) WithLock(ctx context.Context, f func(ctx context.Context) error) error {
	return m.with(ctx, Exclusive, f)
}

// WithRLock calls f while it holds the lock shared, and unlocks; see WithLock.
func (m *RWMutex) WithRLock(ctx context.Context, f func(ctx context.Context) error) error {
	return m.with(ctx, Shared, f)
}

func (m *RWMutex) with(ctx context.Context, mode Mode, f func(ctx context.Context) error) error {
	err := m.usable(ctx)
	if err == nil && f == nil {
		err = lockError(m.name, errors.New("nil function"))
	}
	var l *Lock
	if err == nil {
		l, err = m.lock(ctx, attempt{mode: mode})
	}
	if err != nil {
		return bothError{err, ErrNotRun}
	}
	return l.do(ctx, f)
}

// Name returns the lock's name.
func (m *RWMutex) Name() string {
	if m == nil {
		return ""
	}
	return m.name
}

// errNoClient is what the zero value says.
var errNoClient = fmt.Errorf("dlock: this RWMutex comes from no client (use Client.RWMutex): %w", ErrClosed)

// usable returns why the lock cannot be used with that context at all.
func (m *RWMutex) usable(ctx context.Context) error {
	if m == nil || m.client == nil {
		return errNoClient
	}
	if ctx == nil {
		return lockError(m.name, errors.New("nil context"))
	}
	return m.err
}

func (m *RWMutex) lock(ctx context.Context, a attempt) (*Lock, error) {
	if m == nil || m.client == nil {
		return nil, errNoClient
	}
	hook := m.options.trace.Failed
	if hook == nil {
		return m.acquire(ctx, &a)
	}
	began := time.Now()
	l, err := m.acquire(ctx, &a)
	if err != nil {
		if ctx == nil {
			ctx = context.Background()
		}
		hook(ctx, FailedInfo{Lock: m.name, Node: a.node, Mode: a.mode, Try: a.try, Waited: time.Since(began), Err: err})
	}
	return l, err
}

func (m *RWMutex) acquire(ctx context.Context, a *attempt) (*Lock, error) {
	if err := m.usable(ctx); err != nil {
		return nil, err
	}
	if l, err := m.reenter(ctx, a.mode); l != nil || err != nil {
		return l, err
	}
	if err := m.client.enter(); err != nil {
		return nil, lockError(m.name, err)
	}
	defer m.client.leave()
	if m.options.timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, m.options.timeout)
		defer cancel()
		ctx = limited
	}
	a.m = m
	if m.options.retention != nil {
		r := m.client.retainers.use(m)
		defer r.ref(-1)
		return r.lock(ctx, *a)
	}
	return a.run(ctx)
}
