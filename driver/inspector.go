package driver

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Inspector is an optional part of a session, for tools, operators, logs and
// hooks. No lock depends on it, except that Once of package recipes needs
// SetValue and Value.
//
// A session that supports only some of the methods embeds [Unsupported]. Each
// method is supported in every call or in none. Rule 10 of [Session] applies.
//
// Call [Inspect] rather than asserting the type. A session that wraps another
// one forwards these methods to the result of Inspect.
type Inspector interface {
	// Read returns what the store knows about the named node. The result is at
	// least as new as everything that this session has done and seen. If the
	// node is not in the queue, the error matches [ErrGone].
	Read(ctx context.Context, queue, name string) (NodeInfo, error)

	// Walk returns the names of the queues at and below the prefix, in lexical
	// order. The prefix "stock" matches "stock" and "stock/42" but not "stocks".
	// An empty prefix matches all queues. The result may lack queues without
	// nodes, and queues created or removed during the call.
	//
	// If the prefix is not empty and [CheckQueue] rejects it, the error matches
	// [ErrBadName].
	Walk(ctx context.Context, prefix string) ([]string, error)

	// Remove removes the node that has both the name and the token of p, whichever
	// session owns it. If there is no such node, for example because it has been
	// renamed, the error matches [ErrGone]. The token is the one that Read
	// returns, which may be zero for the nodes of other programs.
	//
	// To watches, this is a Delete with the cause Changed: see rules 6 and 13.
	//
	// After an error that matches [ErrUnavailable], or if ctx has ended, the node
	// may or may not be there, and a request in flight may still remove it. After
	// any other error this call has not removed the node.
	Remove(ctx context.Context, queue string, p Place) error

	// SetValue stores one value beside the queue, replacing any earlier value, if
	// the session's own node p is in the queue. The store checks this and writes
	// in one step. The value outlives p and the session. As in Delete, p may be a
	// place from before a Replace of the node.
	//
	// The error is or matches one of these:
	//
	//   - the error of [CheckValue], if it rejects the value. No request is sent.
	//   - [ErrGone], if p is gone. Nothing is stored.
	//   - [ErrStale], if a node with a greater token than p's has set a value.
	//     Nothing is stored.
	//   - [ErrUnavailable], or any other error after ctx has ended. The value may
	//     or may not be stored, and the caller may repeat SetValue. A request in
	//     flight may still store the value while p is in the queue, even after a
	//     later SetValue of p.
	//   - any other error. This call has not stored the value.
	//
	// List and Walk do not show values, and no watch needs to report them. An
	// operator who removes the queue may remove its value.
	SetValue(ctx context.Context, queue string, p Place, value []byte) error

	// Value returns the value that was set last, and the token of the node that
	// set it. If there is none, value is nil and the token zero. The result is at
	// least as new as everything that this session has done and seen.
	Value(ctx context.Context, queue string) (value []byte, token int64, err error)

	// Describe returns what the session currently knows about itself. It may be
	// called after the end of the session. It does no I/O, does not block, and
	// returns no secret. Unknown fields are zero.
	Describe() SessionInfo

	// OnHeartbeat sets the function f, which is called after each answer from the
	// store that has renewed the session's lease. The argument left is what was
	// left of the lease when the answer arrived, and term is its full length. A
	// later call replaces f; nil stops the calls. OnHeartbeat reports whether the
	// session supports this.
	//
	// The session may call f concurrently, and while it holds locks of its own. So
	// f must return at once, and must not call a method of the session.
	OnHeartbeat(f func(left, term time.Duration)) bool
}

// Inspect returns s as an Inspector, or [Unsupported] if s is none.
func Inspect(s Session) Inspector {
	if i, ok := s.(Inspector); ok {
		return i
	}
	return Unsupported{}
}

// Unsupported is an [Inspector] whose methods do nothing, and return zero
// values and errors that match [errors.ErrUnsupported]. Embed it in a session
// that supports only some of the methods.
type Unsupported struct{}

var _ Inspector = Unsupported{}

func (Unsupported) Read(context.Context, string, string) (NodeInfo, error) {
	return NodeInfo{}, errors.ErrUnsupported
}

func (Unsupported) Walk(context.Context, string) ([]string, error) {
	return nil, errors.ErrUnsupported
}

func (Unsupported) Remove(context.Context, string, Place) error { return errors.ErrUnsupported }

func (Unsupported) SetValue(context.Context, string, Place, []byte) error {
	return errors.ErrUnsupported
}

func (Unsupported) Value(context.Context, string) (value []byte, token int64, err error) {
	return nil, 0, errors.ErrUnsupported
}

func (Unsupported) Describe() SessionInfo { return SessionInfo{} }

func (Unsupported) OnHeartbeat(func(left, term time.Duration)) bool { return false }

// MaxValue is the maximum length of a value for SetValue, in bytes.
const MaxValue = 64 << 10

// CheckValue returns an error if the value is longer than [MaxValue].
func CheckValue(value []byte) error {
	if len(value) > MaxValue {
		return fmt.Errorf("a value of %d bytes is longer than the %d that can be stored", len(value), MaxValue)
	}
	return nil
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
	// SessionLeft is the time after which the store drops the owner's session
	// unless it hears from the owner again, by the store's clock at the time of
	// the read. It is zero if no session owns the node, or if the store does not
	// tell.
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
	// Margin is the difference between Timeout and the term of the lease. Zero
	// means a quarter of Timeout.
	Margin time.Duration
	// Generation identifies the store's data. When the store notices that it has
	// lost data, it ends all sessions and changes Generation. It is empty if the
	// store cannot lose data, or does not notice it.
	Generation string
	// Grace is how long Connect waited for earlier leases to end, because the
	// store was new or had lost data.
	Grace time.Duration
}
