package driver

import (
	"context"
	"errors"
	"time"
)

// The interfaces in this file are optional. A session that cannot do what an
// interface asks lacks the method. Or it has the method, and every call returns an
// error that matches [errors.ErrUnsupported] and changes nothing. The second way is
// for a session that wraps another session, and for a session whose abilities
// depend on its server.
//
// Only the functions [Replace], [Read], [Walk] and [Describe] ask a session for
// these interfaces. All other code calls the functions, which know both ways.

// Replacer is a session that can change the prefix of a node. That turns an
// exclusive lock into a shared lock, whose node keeps its place in the queue.
type Replacer interface {
	// Replace gives the session's own node p another prefix and returns the new
	// place. Sequence, epoch, token, data and owner stay the same. The node may be
	// a holder's or a waiter's.
	//
	// Rule 12, replace: at any time List shows exactly one of the two names. A
	// watch that has the node under its old name ends, and so does a watch of the
	// whole queue.
	//
	// If the node is gone, the error matches [ErrGone]. After any other error the
	// node may have either name. The caller may then repeat Replace with the same
	// arguments. It may also call Delete with any place that the node has had:
	// Delete removes the node under the name that it has now.
	Replace(ctx context.Context, queue string, p Place, prefix string) (Place, error)
}

// NodeReader is a session that can read a node, for people who look at a queue.
type NodeReader interface {
	// Read returns the facts that the store has about the node with that name. They
	// are at least as new as everything that this session has done and seen
	// before. If the node is not in the queue, the error matches [ErrGone].
	Read(ctx context.Context, queue, name string) (NodeInfo, error)
}

// Walker is a session that can find queues.
type Walker interface {
	// Walk returns the names of the queues at prefix and below it, in lexical
	// order. The prefix "stock" finds "stock" and "stock/42" but not "stocks". An
	// empty prefix finds all queues. The result may lack a queue without nodes,
	// and a queue that is made or removed during the call.
	//
	// If the prefix is not empty and [CheckQueue] refuses it, the error matches
	// [ErrBadName].
	Walk(ctx context.Context, prefix string) ([]string, error)
}

// Describer is a session that can name itself, for people who read logs. Recipes
// log the description and give it to hooks. No lock depends on it.
type Describer interface {
	// Describe returns what the session knows about itself now. It may be called
	// after the end of the session. It does no I/O, does not block, and returns
	// no secret. Fields that are unknown are zero.
	Describe() SessionInfo
}

// Replace calls the session's Replace: see [Replacer]. If the session cannot
// replace, the error matches [errors.ErrUnsupported].
func Replace(ctx context.Context, s Session, queue string, p Place, prefix string) (Place, error) {
	if r, ok := s.(Replacer); ok {
		return r.Replace(ctx, queue, p, prefix)
	}
	return Place{}, errors.ErrUnsupported
}

// Read calls the session's Read: see [NodeReader]. If the session cannot read, the
// error matches [errors.ErrUnsupported].
func Read(ctx context.Context, s Session, queue, name string) (NodeInfo, error) {
	if r, ok := s.(NodeReader); ok {
		return r.Read(ctx, queue, name)
	}
	return NodeInfo{}, errors.ErrUnsupported
}

// Walk calls the session's Walk: see [Walker]. If the session cannot walk, the
// error matches [errors.ErrUnsupported].
func Walk(ctx context.Context, s Session, prefix string) ([]string, error) {
	if w, ok := s.(Walker); ok {
		return w.Walk(ctx, prefix)
	}
	return nil, errors.ErrUnsupported
}

// Describe calls the session's Describe: see [Describer]. If the session has no
// such method, the result is zero.
func Describe(s Session) SessionInfo {
	if d, ok := s.(Describer); ok {
		return d.Describe()
	}
	return SessionInfo{}
}

// NodeInfo holds the facts that a store has about a node.
type NodeInfo struct {
	Node
	// Token is the fencing token that Create returned with the node. If another
	// client can write to the store, the token of a Foreign node may be forged.
	Token int64
	// Data is the data that Create was given. Any client of the store may have
	// written it, so a reader must not trust it.
	Data []byte
	// Owner names the session that owns the node, in the store's terms. It is
	// empty if no session owns the node.
	Owner string
	// Foreign reports whether the session that reads the node does not own it.
	// Then another session owns the node, or no session does. Foreign is false
	// if the driver does not know.
	Foreign bool
	// Created is the time of creation by the store's clock. It is zero if unknown.
	Created time.Time
}

// SessionInfo describes a session.
type SessionInfo struct {
	// ID names the session in the store's terms, as NodeInfo.Owner does.
	ID string
	// Server is the address of the server to which the session is connected, or
	// was connected last.
	Server string
	// Timeout is the session timeout that the store has granted: the time for
	// which it keeps a session that it does not hear from.
	Timeout time.Duration
}
