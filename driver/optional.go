package driver

import (
	"context"
	"time"
)

// Replacer is implemented by sessions that can change the prefix of a node, which is how an
// exclusive lock turns into a shared one without losing its place.
type Replacer interface {
	// Replace gives the session's own node p another prefix, atomically, and returns the place
	// as it is now. Sequence, epoch, token, data and owner stay.
	//
	// Rule 12: List shows exactly one of the two names at any time. For watches it is a change
	// of membership and the end of the old name. After an error either name may stand:
	// repeating the call with the same arguments finishes it, and Delete with either place
	// removes whichever stands. A node that is gone gives an error that matches [ErrGone].
	Replace(ctx context.Context, queue string, p Place, prefix string) (Place, error)
}

// Releaser is implemented by sessions that can tell their watchers that a node was given back
// by somebody who held the lock exclusively. It is what it takes to pass a lock on without
// listing the queue: to hear that the holder has gone, and to know that one's own node stands.
type Releaser interface {
	// Release is Delete, called by the holder of an exclusive lock.
	//
	// Rule 13: a watch of that node may send [Released] before it closes. Released is sent for
	// nothing else: not for Delete, Replace, the end of a session, an operator's removal, or a
	// reconnect. What one session learns through its watches becomes visible in the store's
	// order: when Released can be received, an earlier removal of a node that the same session
	// watches can be received too.
	Release(ctx context.Context, queue string, p Place) error

	// WatchPlace is [Session.Watch] of the session's own node p, and of no other: if that node does
	// not stand under that name, also if another node does, the channel is closed when WatchPlace
	// returns.
	WatchPlace(ctx context.Context, queue string, p Place) (<-chan Cause, error)
}

// Reader is implemented by sessions that can show a node to people who look at a queue.
type Reader interface {
	// Read returns what the store knows of the node of that name; it sees at least everything
	// that this session has done and seen before. A node that is not there gives an error that
	// matches [ErrGone].
	Read(ctx context.Context, queue, name string) (Info, error)
}

// Info is what a store knows of a node.
type Info struct {
	Node
	// Token is the node's fencing token, the same that Create returned to its
	// owner. Of a node that is Foreign it may be forged where others can write
	// to the store.
	Token int64
	// Data is what was given to Create. It may have been written by anybody: treat it as
	// hostile.
	Data []byte
	// Owner names the session that the node belongs to, in the store's terms. It is empty for a
	// node that belongs to no session.
	Owner string
	// Foreign reports that the node does not belong to the session that read
	// it. A driver that cannot tell leaves it false.
	Foreign bool
	// Created is the time of creation by the store's clock, zero if unknown.
	Created time.Time
}

// Describer is implemented by sessions that can say, for people, which session
// of the store they are. Recipes log it and hand it to hooks; no lock depends
// on it. Use [Describe] to ask.
type Describer interface {
	// Describe returns what the session knows of itself now, also after its
	// end. It does no I/O, does not block, and tells no secret. Unknown fields
	// stay zero.
	Describe() SessionInfo
}

// SessionInfo is what a session knows of itself.
type SessionInfo struct {
	// ID names the session in the store's terms, as Info.Owner does.
	ID string
	// Server is the address of the server that the session is connected to, or
	// was last.
	Server string
	// Timeout is how long the store keeps a session that it does not hear of,
	// as granted.
	Timeout time.Duration
}

// Describe returns what the session knows of itself, or nothing where it is no
// [Describer].
func Describe(s Session) SessionInfo {
	if d, ok := s.(Describer); ok {
		return d.Describe()
	}
	return SessionInfo{}
}

// Walker is implemented by sessions that can find queues.
type Walker interface {
	// Walk returns the names of the queues that exist at prefix or below it (prefix "stock"
	// finds "stock" and "stock/42" but not "stocks"), in lexical order; an empty prefix finds
	// all. A queue without nodes may be missing from the result, and so may one that is made or
	// removed meanwhile.
	Walk(ctx context.Context, prefix string) ([]string, error)
}
