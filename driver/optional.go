package driver

import (
	"context"
	"errors"
	"time"
)

// The interfaces of this file are optional. A session may lack the method, or
// have it and return an error that matches [errors.ErrUnsupported] in every
// call, which is how a session that wraps another one, or whose store differs
// from server to server, says that it cannot do it. An unsupported call changes
// nothing. [Replace], [Read], [Walk] and [Describe] ask a session; nothing else
// should.

// Replacer is implemented by sessions that can change the prefix of a node,
// which is how an exclusive lock turns into a shared one without losing its
// place.
type Replacer interface {
	// Replace gives the session's own node p another prefix, atomically, and
	// returns the place as it is now. Sequence, epoch, token, data and owner
	// stay.
	//
	// Rule 12: List shows exactly one of the two names at any time. For watches
	// it is a change of membership and the end of the old name. After an error
	// either name may stand: repeating the call with the same arguments
	// finishes it, and Delete with either place removes whichever stands. A
	// node that is gone gives an error that matches [ErrGone].
	Replace(ctx context.Context, queue string, p Place, prefix string) (Place, error)
}

// NodeReader is implemented by sessions that can show a node to people who look
// at a queue.
type NodeReader interface {
	// Read returns what the store knows of the node of that name. It sees at
	// least everything that this session has done and seen before. A node that
	// is not there gives an error that matches [ErrGone].
	Read(ctx context.Context, queue, name string) (NodeInfo, error)
}

// Walker is implemented by sessions that can find queues.
type Walker interface {
	// Walk returns the names of the queues that exist at prefix or below it
	// (prefix "stock" finds "stock" and "stock/42" but not "stocks"), in
	// lexical order; an empty prefix finds all. A queue without nodes may be
	// missing from the result, and so may one that is made or removed
	// meanwhile.
	Walk(ctx context.Context, prefix string) ([]string, error)
}

// Describer is implemented by sessions that can say, for people, which session
// of the store they are. Recipes log it and hand it to hooks; no lock depends
// on it.
type Describer interface {
	// Describe returns what the session knows of itself now, also after its
	// end. It does no I/O, does not block, and tells no secret. Unknown fields
	// stay zero.
	Describe() SessionInfo
}

// Replace calls the session's Replace, see [Replacer].
func Replace(ctx context.Context, s Session, queue string, p Place, prefix string) (Place, error) {
	if r, ok := s.(Replacer); ok {
		return r.Replace(ctx, queue, p, prefix)
	}
	return Place{}, errors.ErrUnsupported
}

// Read calls the session's Read, see [NodeReader].
func Read(ctx context.Context, s Session, queue, name string) (NodeInfo, error) {
	if r, ok := s.(NodeReader); ok {
		return r.Read(ctx, queue, name)
	}
	return NodeInfo{}, errors.ErrUnsupported
}

// Walk calls the session's Walk, see [Walker].
func Walk(ctx context.Context, s Session, prefix string) ([]string, error) {
	if w, ok := s.(Walker); ok {
		return w.Walk(ctx, prefix)
	}
	return nil, errors.ErrUnsupported
}

// Describe returns what the session knows of itself, or nothing if it is no
// [Describer].
func Describe(s Session) SessionInfo {
	if d, ok := s.(Describer); ok {
		return d.Describe()
	}
	return SessionInfo{}
}

// NodeInfo is what a store knows of a node.
type NodeInfo struct {
	Node
	// Token is the node's fencing token, the same that Create returned to its
	// owner. Of a node that is Foreign it may be forged where others can write
	// to the store.
	Token int64
	// Data is what was given to Create. Any client of the store may have
	// written it: treat it as hostile.
	Data []byte
	// Owner names the session that the node belongs to, in the store's terms.
	// It is empty for a node that belongs to no session.
	Owner string
	// Foreign reports that the node does not belong to the session that read
	// it. A driver that cannot tell leaves it false.
	Foreign bool
	// Created is the time of creation by the store's clock, zero if unknown.
	Created time.Time
}

// SessionInfo is what a session knows of itself.
type SessionInfo struct {
	// ID names the session in the store's terms, as NodeInfo.Owner does.
	ID string
	// Server is the address of the server that the session is connected to, or
	// was last.
	Server string
	// Timeout is how long the store keeps a session that it does not hear of,
	// as granted.
	Timeout time.Duration
}
