package driver

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The interfaces in this file are optional. A session that does not support one
// either lacks the method, or has a method that changes nothing and always
// returns an error that matches [errors.ErrUnsupported]. The latter is for a
// session that wraps another one, or whose abilities depend on its server.
//
// Call the functions [Read], [Walk], [Remove], [Keep], [Kept], [Describe] and
// [OnHeartbeat] rather than the interfaces. They handle both cases.

// NodeReader is a session that can read a node, for tools that inspect queues.
type NodeReader interface {
	// Read returns what the store knows about the named node. The result is at
	// least as new as everything that this session has done and seen. If the
	// node is not in the queue, the error matches [ErrGone].
	Read(ctx context.Context, queue, name string) (NodeInfo, error)
}

// Walker is a session that can find queues.
type Walker interface {
	// Walk returns the names of the queues at and below prefix, in lexical
	// order. The prefix "stock" matches "stock" and "stock/42" but not
	// "stocks". An empty prefix matches all queues. The result may lack queues
	// without nodes, and queues created or removed during the call.
	//
	// If the prefix is not empty and [CheckQueue] rejects it, the error matches
	// [ErrBadName].
	Walk(ctx context.Context, prefix string) ([]string, error)
}

// Remover is a session that can remove any node, for operators who free a lock
// whose holder is stuck.
type Remover interface {
	// Remove removes the node of that name and token, whichever session owns
	// it. Any other node stays: if the node has another name or token by now,
	// or is gone, the error matches [ErrGone]. The token is the one that Read
	// returns. It is zero for the nodes of other programs if the store gives
	// those no token.
	//
	// Remove resembles a Delete with the cause Changed, except that the owner
	// did not ask for it. The owner's watches of the node end as after any
	// removal by an operator, and those of the contenders behind it end without
	// Released (rules 6 and 13).
	//
	// After an error that matches [ErrUnavailable], or if ctx has ended, the
	// node may or may not be there, and a request in flight may still remove
	// it. After any other error the node has not been removed by this call.
	Remove(ctx context.Context, queue string, p Place) error
}

// Keeper is a session that can keep one value beside each queue, which outlives
// the queue's nodes. Package recipes uses it to remember what holders have done.
type Keeper interface {
	// Keep stores the value beside the queue, replacing any earlier value. It
	// does so only if the session's own node p is in the queue. The store checks
	// this and writes in one step. The value outlives p and the session.
	//
	// If p is gone, the error matches [ErrGone]. If a node with a greater token
	// than p's has kept a value, it matches [ErrStale]. In both cases nothing is
	// stored. Like Delete, Keep takes any place that the node has had.
	//
	// After an error that matches [ErrUnavailable], or if ctx has ended, the
	// value may or may not be stored, and a request in flight may still store
	// it while p is in the queue, even after a later Keep of p. The caller may
	// repeat Keep. After any other error the value is not stored by this call.
	//
	// If [CheckValue] rejects the value, Keep returns its error and sends no
	// request to the store.
	//
	// A kept value is not a node: List and Walk do not show it, and no watch
	// needs to report it. It may be removed by an operator who removes the
	// queue.
	Keep(ctx context.Context, queue string, p Place, value []byte) error

	// Kept returns the value that was kept last, and the token of the node that
	// kept it. If there is none, value is nil and the token zero. The result is
	// at least as new as everything that this session has done and seen. For
	// example, a session that has seen the end of a node also sees what that
	// node kept.
	Kept(ctx context.Context, queue string) (value []byte, token int64, err error)
}

// MaxValue is the maximum length of a kept value, in bytes.
const MaxValue = 64 << 10

// CheckValue returns an error if the value is longer than [MaxValue].
func CheckValue(value []byte) error {
	if len(value) > MaxValue {
		return fmt.Errorf("a value of %d bytes is longer than the %d that can be kept", len(value), MaxValue)
	}
	return nil
}

// Describer is a session that can describe itself, for logs and hooks. No lock
// depends on it.
type Describer interface {
	// Describe returns what the session currently knows about itself. It may be
	// called after the end of the session. It does no I/O, does not block, and
	// returns no secret. Unknown fields are zero.
	Describe() SessionInfo
}

// HeartbeatReporter is a session that tells how close it came to its end before
// each renewal of its lease. No lock depends on it.
type HeartbeatReporter interface {
	// OnHeartbeat sets f as the function that is called after each answer of
	// the store that has renewed the session's lease. The argument left is what
	// was left of the lease when the answer arrived, and term is how long the
	// lease runs without a renewal. A later call replaces f; nil stops the
	// calls.
	//
	// The session may hold locks of its own while it calls f, and may call it
	// concurrently. So f must return at once, and must not call a method of the
	// session.
	//
	// OnHeartbeat reports whether the session supports this.
	OnHeartbeat(f func(left, term time.Duration)) bool
}

// Read calls s.Read: see [NodeReader]. If the session does not support it, the
// error matches [errors.ErrUnsupported].
func Read(ctx context.Context, s Session, queue, name string) (NodeInfo, error) {
	if r, ok := s.(NodeReader); ok {
		return r.Read(ctx, queue, name)
	}
	return NodeInfo{}, errors.ErrUnsupported
}

// Walk calls s.Walk: see [Walker]. If the session does not support it, the
// error matches [errors.ErrUnsupported].
func Walk(ctx context.Context, s Session, prefix string) ([]string, error) {
	if w, ok := s.(Walker); ok {
		return w.Walk(ctx, prefix)
	}
	return nil, errors.ErrUnsupported
}

// Remove calls s.Remove: see [Remover]. If the session does not support it, the
// error matches [errors.ErrUnsupported].
func Remove(ctx context.Context, s Session, queue string, p Place) error {
	if r, ok := s.(Remover); ok {
		return r.Remove(ctx, queue, p)
	}
	return errors.ErrUnsupported
}

// Keep calls s.Keep: see [Keeper]. If the session does not support it, the error
// matches [errors.ErrUnsupported].
func Keep(ctx context.Context, s Session, queue string, p Place, value []byte) error {
	if k, ok := s.(Keeper); ok {
		return k.Keep(ctx, queue, p, value)
	}
	return errors.ErrUnsupported
}

// Kept calls s.Kept: see [Keeper]. If the session does not support it, the error
// matches [errors.ErrUnsupported].
func Kept(ctx context.Context, s Session, queue string) (value []byte, token int64, err error) {
	if k, ok := s.(Keeper); ok {
		return k.Kept(ctx, queue)
	}
	return nil, 0, errors.ErrUnsupported
}

// Describe calls s.Describe: see [Describer]. If the session has no such
// method, the result is zero.
func Describe(s Session) SessionInfo {
	if d, ok := s.(Describer); ok {
		return d.Describe()
	}
	return SessionInfo{}
}

// OnHeartbeat calls s.OnHeartbeat: see [HeartbeatReporter]. It reports whether
// the session supports it.
func OnHeartbeat(s Session, f func(left, term time.Duration)) bool {
	h, ok := s.(HeartbeatReporter)
	return ok && h.OnHeartbeat(f)
}

// NodeInfo is what a store knows about a node.
type NodeInfo struct {
	Node
	// Token is the fencing token that Create returned with the node. If other
	// clients can write to the store, the token of a Foreign node may be
	// forged.
	Token int64
	// Data is the data passed to Create. Any client of the store may have
	// written it, so readers must not trust it.
	Data []byte
	// Owner identifies the session that owns the node, in the store's terms. It
	// is empty if no session owns the node.
	Owner string
	// Foreign reports whether the node is known not to belong to the session
	// that reads it. It is false if the driver does not know.
	Foreign bool
	// Created is the creation time by the store's clock, or zero if unknown.
	Created time.Time
	// SessionLeft is how long the store would keep the owner's session if it
	// heard nothing more from it, by the store's clock at the time of the read.
	// It is zero if no session owns the node, or if the store does not tell.
	SessionLeft time.Duration
}

// SessionInfo describes a session.
type SessionInfo struct {
	// ID identifies the session in the store's terms, as in NodeInfo.Owner.
	ID string
	// Server is the address of the server to which the session is connected, or
	// was last connected.
	Server string
	// Timeout is the session timeout granted by the store: how long it keeps a
	// session that it does not hear from.
	Timeout time.Duration
	// Margin is how much less than Timeout the term of the lease is; zero means
	// a quarter of Timeout.
	Margin time.Duration
	// Generation identifies the state of a store that notices when it loses
	// data. It changes with each loss, which ends all sessions. It is empty if
	// the store cannot lose data, or does not notice it.
	Generation string
	// Grace is how long Connect waited for leases of an earlier generation to
	// end.
	Grace time.Duration
}
