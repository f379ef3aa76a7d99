// Package driver is the contract between dlock and the stores that keep its
// locks.
//
// Applications do not use this package: they import a driver for its side
// effect and call dlock.Open. Authors of drivers implement [Driver],
// [Connector] and [Session], may implement the optional interfaces of this
// package, and prove the result with package dlocktest.
//
// A store keeps queues. A queue is a named, ordered set of nodes. Each node
// belongs to the session that created it and goes when that session ends.
// Everything that a lock promises follows from the thirteen rules below. The
// methods repeat them where they apply, and dlocktest checks them by number:
//
//  1. Order: a node that has been listed, or whose Create has returned, never
//     gets a new node before it.
//  2. Names: a node's name is its prefix and its sequence in at least ten
//     digits; a queue is never taken for a node.
//  3. Tokens rise strictly with creation order, for the whole history of a
//     queue.
//  4. Create is all or nothing.
//  5. Ahead: if Create says which nodes are before its node, it says all of
//     them.
//  6. Watch is armed when it returns, and never misses the end of a node.
//  7. Delete removes the node that Create returned and never another one.
//  8. The end of a session is known here before the store lets another session
//     pass.
//  9. Close removes the session's nodes before it returns.
//  10. Methods are safe for many goroutines, honour their context and mark
//     their errors.
//  11. Nothing outlives Close.
//  12. Replace is atomic and keeps the place.
//  13. Released is sent for a Delete that said Released and for nothing else.
//
// [Lease] implements rule 8 once for all drivers, and [FormatName],
// [ParseName], [CheckQueue] and [CheckPrefix] the names of rule 2. Package
// watches keeps the open watches of a session (rules 6 and 13), and package
// calls makes calls of client libraries that know no context (rule 10). None of
// these is part of the contract.
package driver

import "context"

// Driver opens connectors. It is what a driver package registers with
// dlock.Register.
//
// A Driver is safe for use by many goroutines.
type Driver interface {
	// OpenConnector parses a data source name. It does no I/O. An error names
	// the part of the dsn that was wrong and never repeats a password.
	OpenConnector(dsn string) (Connector, error)
}

// Connector makes sessions with one store, always with the same settings.
//
// A Connector is safe for use by many goroutines.
type Connector interface {
	// Connect begins a new session. It returns once the store has confirmed
	// the session, or promptly when ctx ends. After an error nothing stays
	// behind, neither here nor (beyond a session timeout) in the store. Ending
	// ctx after Connect has returned does nothing to the session.
	//
	// An error that may pass matches [ErrUnavailable].
	Connect(ctx context.Context) (Session, error)
}

// Session is one session with a store. It never turns into another one: once it
// has ended it stays ended, and a caller that needs a session connects again.
//
// Rule 10: all methods may be called from many goroutines at once. A ctx is for
// the call only: the call returns promptly when ctx ends, and what it has
// returned does not depend on ctx. After the end of the session the methods
// return an error that matches [ErrSessionEnded]. An error that may pass by
// itself matches [ErrUnavailable]; recipes repeat the call after those and
// after no others. The error of a call whose ctx has ended may match
// ErrUnavailable or the ctx's error or both. A queue or prefix that
// [CheckQueue] or [CheckPrefix] refuses gets an error that matches [ErrBadName],
// and the store is not asked.
//
// Rule 11: once Close has returned, no goroutine, timer, connection or watch of
// the session is left.
//
// A contender with an open watch of its own node and of nodes ahead of it does
// not act as a holder. If it stops that watch before the watch has sent Released
// or has ended, it calls List before it acts as a holder. So a driver knows which
// of its session's nodes only wait. Every other node counts as held.
type Session interface {
	// Create appends a node to the queue, making the queue where it is missing,
	// and returns the place it won.
	//
	// Rule 1, order: once a node has been listed by any session, or its Create
	// has returned, no node ever appears before it.
	//
	// Rule 2, names: the node's name is the prefix followed by the sequence in
	// at least ten digits (see [FormatName]), unique among the nodes of the
	// queue. A queue that was removed and made again may start over; Node.Epoch
	// tells its incarnations apart. A queue of any name that [CheckQueue] takes
	// is a queue of its own and no member of the queue above it, also if its
	// last segment looks like a node. A driver whose store keeps queues where
	// it keeps the nodes of the queue above escapes such segments, reversibly.
	//
	// Rule 3, tokens: Place.Token rises strictly with creation order within a
	// queue, for the whole history of the store: also after the queue became
	// empty, was removed and was made again, and when the sequence wraps or
	// rolls over. A driver whose store can lose its latest data makes a token
	// of its last one and the clock: max(last+1, clock).
	//
	// Rule 4, all or nothing: when Create returns an error, also for a ctx that
	// ended or a reply that was lost, no node of that call stays. None is there,
	// or the driver removes it as soon as the store can be reached, while the
	// session lives, and catches a request that is still on its way. If the
	// node stands and only what else Joined holds could not be had, Create
	// returns the place without it, and no error.
	//
	// Rule 5, ahead: see [Joined].
	Create(ctx context.Context, queue string, n NodeSpec) (Joined, error)

	// List returns the contenders of the queue, oldest first: rule 1. A queue
	// that does not exist is empty.
	//
	// The contenders are the nodes that Create made, and the nodes of other
	// programs that [ParseName] accepts. A driver may count further nodes of
	// other programs if its store gives them a place among its own: zkdriver
	// counts every node that ends in ten digits. Any other node is left out.
	// A foreign node ranks by its sequence. For recipes a contender is
	// exclusive unless its name is that of a reader.
	//
	// List sees at least everything that this session has done and seen before.
	List(ctx context.Context, queue string) ([]Node, error)

	// Watch watches the session's own node p, and nodes ahead of it. The watch
	// ends once one of them is not in the queue under its name, by whatever
	// route: deleted, replaced, its session closed or expired, its queue
	// removed. If p has a token, p is that very node: another node of its name
	// does not count. A place without a token, and a node ahead, stands for
	// whichever node has the name.
	//
	// Rule 6: the watch is armed when Watch returns: nothing that happens
	// afterwards is missed, and if p is not there, its channel is closed by
	// then. The end of the session ends every watch. A watch may end early: its
	// end says only that it is time to list again. A removal that the store
	// does not announce is noticed within a session timeout. After an error
	// nothing is armed.
	//
	// Rule 13, released: before its end, a watch may send [Released], at most
	// once: a node ahead was removed by a Delete that said Released, while p
	// stood. The watch then goes on for p alone. If the driver knows by then
	// that p has gone, the watch has ended as well. Released is sent for
	// nothing else: not for another Delete, a Replace, the end of a session, an
	// operator's removal or a reconnect.
	Watch(ctx context.Context, queue string, p Place, ahead ...Node) (Watch, error)

	// WatchQueue watches the membership of the queue. The watch ends on any
	// change after it was armed, so a caller arms it first and lists then. What
	// else rule 6 says about Watch holds for WatchQueue as well.
	WatchQueue(ctx context.Context, queue string) (Watch, error)

	// Delete removes the node that Create returned: rule 7. If the node is gone
	// already the error matches [ErrGone], so that a caller that unlocks learns
	// that the lock had been taken away. A lost reply of the same call is no
	// reason for ErrGone. Delete is safe to repeat, however late: a repeat, or
	// a first try after the session has seen that the node is gone, never
	// removes another node that took the name since. A repeat after a nil error
	// may return nil or ErrGone.
	//
	// The cause is what watches of the node may be told: Released if the caller
	// held an exclusive lock and gives it back, else Changed. A driver may
	// ignore it.
	//
	// After any other error the node may or may not be there.
	Delete(ctx context.Context, queue string, p Place, why Cause) error

	// Done returns a channel that closes when the session has ended.
	//
	// Rule 8: Done closes, and Err turns non-nil, before the store can let
	// another session pass. That is judged by this process's own clocks, from
	// the sending time of a request which the store is known to have counted
	// for the session. [Lease] does it. After a pause of the process, or a step
	// of the wall clock, Done may close a little later than Err tells.
	Done() <-chan struct{}

	// Err returns nil while the session lives and after that, for ever, an
	// error that matches [ErrSessionEnded] and says why it ended.
	//
	// Rule 8: Err looks at the monotonic and at the wall clock when it is
	// called, so that a process that was paused or a machine that slept learns
	// the truth before its timers have run.
	Err() error

	// Close ends the session and releases everything it holds, here and in the
	// store.
	//
	// Rule 9: the session's nodes are gone when Close returns nil. If the store
	// cannot be reached, Close returns an error that matches [ErrUnavailable]
	// in bounded time (a few seconds), and the store drops the nodes when the
	// session times out there. Rule 8 holds: Done is closed before the nodes
	// go.
	//
	// A session that has ended before, because its lease has run out, may live
	// on in the store for a while, with its nodes. Close ends it there as well.
	// Before Close is called, the driver does not: holders may not have noticed
	// the end yet.
	//
	// A Close after one that returned an error tries again; after one that
	// returned nil it does nothing and returns nil. Calls at the same time may
	// share one try.
	Close() error
}

// Node is a member of a queue.
type Node struct {
	// Name is prefix and sequence, "web1-W-0000000007".
	Name string
	// Seq is the sequence, 7.
	Seq int64
	// Epoch tells the incarnations of a queue apart. A driver whose sequences
	// can start over (because a queue was removed and made again) sets it to a
	// number that differs from one incarnation to the next, alike in Create,
	// Replace and List. Name and Epoch together name one node for ever. A
	// driver whose sequences never start over leaves it zero.
	Epoch int64
}

// Place is a node with the fencing token that Create gave it: rule 3.
type Place struct {
	Node
	// Token is zero if the caller knows the node by its name only.
	Token int64
}

// NodeSpec is what Create makes a node of.
type NodeSpec struct {
	// Prefix is what the node's name begins with.
	Prefix string
	// Data differs in every call, so that a driver can recognise its own node.
	Data []byte
	// Predecessor returns the index of the node that this contender has to wait
	// for if the nodes ahead of it are these, or -1 if it need not wait. It is
	// pure and does not block. A nil Predecessor says that no watch is wanted. A
	// driver may ignore it.
	Predecessor func(ahead []Node) int
}

// Joined is what Create returns: a place, and what the driver knows already of
// the queue. Everything but the place may be zero; recipes ask for what is
// missing.
type Joined struct {
	Place
	// Known reports that Ahead is known.
	Known bool
	// Ahead holds the nodes before this one, oldest first. Rule 5: it is what
	// List would have returned before this node, at one instant at which this
	// node stood. It may be a list that followed Create on the same connection.
	Ahead []Node
	// Watch is the watch that Watch would have returned for this place and the
	// node ahead that Predecessor chose, armed while both stood.
	Watch Watch
}

// Alone reports whether no node is known to be ahead because there is none.
func (j Joined) Alone() bool { return j.Known && len(j.Ahead) == 0 }

// Watch is a watch of nodes or of a queue. The zero Watch watches nothing.
type Watch struct {
	// C closes when the watch ends. Released may be received from it before.
	C    <-chan Cause
	stop func()
}

// NewWatch returns a watch of that channel. A driver gives it the function that
// frees what the watch holds, or nil. That function does not block and may be
// called more than once, also after the end of the watch.
func NewWatch(c <-chan Cause, stop func()) Watch { return Watch{C: c, stop: stop} }

// Stop frees what the watch holds. It does not block. Whether C closes then is
// open.
func (w Watch) Stop() {
	if w.stop != nil {
		w.stop()
	}
}

// Cause is why a node was deleted, and what a watch says of that.
type Cause int

const (
	// Changed is the zero value: something changed, or may have. List again.
	Changed Cause = iota
	// Released says that the owner of a node held the lock exclusively and gave
	// it back (rule 13).
	Released
)

// String returns "changed" or "released".
func (c Cause) String() string {
	if c == Released {
		return "released"
	}
	return "changed"
}
