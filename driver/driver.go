// Package driver defines what a store must be able to do so that dlock can build locks on it.
//
// Applications do not use this package: they import a driver for its side effect and call
// dlock.Open. Authors of drivers implement [Driver], [Connector] and [Session], may implement
// the optional interfaces of this package, and prove the result with package dlocktest.
//
// A store keeps queues. A queue is a named, ordered set of nodes; each node belongs to the
// session that created it and goes when that session ends. Everything that a lock promises
// follows from the thirteen rules below, which the methods repeat where they apply and which
// dlocktest checks by number:
//
//  1. Order: a node that has been listed, or whose Create has returned, never
//     gets a new node before it.
//  2. Names: a node's name is its prefix and its sequence in at least ten digits;
//     a queue is never taken for a node.
//  3. Tokens rise strictly with creation order, for the whole history of a queue.
//  4. Create is all or nothing.
//  5. Alone is true only if the queue was empty before.
//  6. Watch is armed when it returns, and never misses the end of a node.
//  7. Delete removes the node that Create returned and never another one.
//  8. The end of a session is known here before the store lets anybody pass.
//  9. Close removes the session's nodes before it returns.
//  10. Methods are safe for many goroutines, honour their context and mark
//     their errors.
//  11. Nothing outlives Close.
//  12. Replace is atomic and keeps the place.
//  13. Released is sent for a Release and for nothing else.
//
// [Lease] implements rule 8 once for all drivers, and [FormatName], [ParseName], [CheckQueue]
// and [CheckPrefix] the names of rule 2.
package driver

import "context"

// Driver opens connectors. It is what a driver package registers with dlock.Register.
//
// A Driver is safe for use by many goroutines.
type Driver interface {
	// OpenConnector parses a data source name. It does no I/O. An error names the part of the
	// dsn that was wrong and never repeats a password.
	OpenConnector(dsn string) (Connector, error)
}

// Connector makes sessions with one store, always with the same settings.
//
// A Connector is safe for use by many goroutines.
type Connector interface {
	// Connect begins a new session. It returns once the store has confirmed the session, or
	// promptly when ctx ends; after an error nothing stays behind, neither here nor (beyond a
	// session timeout) in the store. Ending ctx after Connect has returned does nothing to the
	// session.
	//
	// An error that may pass matches [ErrUnavailable].
	Connect(ctx context.Context) (Session, error)
}

// Session is one session with a store. It never turns into another one: once it has ended it
// stays ended, and whoever needs a session connects again.
//
// Rule 10: all methods may be called from many goroutines at once and return promptly when ctx
// ends. After the end of the session they return an error that matches [ErrSessionEnded]. An
// error that may pass by itself matches [ErrUnavailable]; recipes repeat the call after those
// and after no others. A queue or prefix that [CheckQueue] or [CheckPrefix] refuses gets an
// error that matches [ErrName], and the store is not asked.
//
// Rule 11: once Close has returned, no goroutine, timer, connection or watch of the session is
// left.
type Session interface {
	// Create appends a node to the queue, making the queue where it is missing, and returns the
	// place it won.
	//
	// Rule 1, order: once a node has been listed by anybody, or its Create has returned, no
	// node ever appears before it.
	//
	// Rule 2, names: the node's name is prefix followed by the sequence in at
	// least ten digits (see [FormatName]), unique among the nodes of the queue.
	// A queue that was removed and made again may start over; Node.Epoch tells
	// its incarnations apart. A queue of any name that [CheckQueue] takes is a
	// queue of its own and no member of the queue above it, also if its last
	// segment looks like a node. A driver whose store keeps queues where it
	// keeps the nodes of the queue above escapes such segments, reversibly.
	//
	// Rule 3, tokens: Place.Token rises strictly with creation order within a queue, for the
	// whole history of the store: also after the queue became empty, was removed and was made
	// again, and when the sequence wraps or rolls over.
	//
	// Rule 4, all or nothing: when Create returns an error, also for a ctx that ended or a
	// reply that was lost, no node of that call stays. None is there, or the driver removes it
	// as soon as the store can be reached, while the session lives, and catches a request that
	// is still on its way. data differs in every call, so that a driver can recognise its own
	// node.
	//
	// Rule 5, alone: Place.Alone is true only if the queue held no other
	// contender at the instant of creation. False says nothing.
	Create(ctx context.Context, queue, prefix string, data []byte) (Place, error)

	// List returns the contenders of the queue, oldest first: rule 1. A queue
	// that does not exist is empty.
	//
	// The contenders are the nodes that Create made, and the nodes of other
	// programs that [ParseName] accepts. A driver may count further nodes of
	// other programs if its store gives them a place among its own: zkdriver
	// counts every node that ends in ten digits. Any other node is left out.
	// For recipes a contender is exclusive unless its name is that of a reader.
	//
	// List sees at least everything that this session has done and seen before.
	List(ctx context.Context, queue string) ([]Node, error)

	// Watch returns a channel that closes once the node is not in the queue under that name, by
	// whatever route: deleted, replaced, its session closed or expired, its queue removed. It
	// closes at once if the node is not there.
	//
	// Rule 6: the watch is armed when Watch returns: nothing that happens afterwards is missed.
	// The channel may close early; a close says only that it is time to list again. With an
	// empty name it closes on any change of the queue's membership after it was armed (so arm
	// it first and list then). Before it closes, a Cause may be received from it; a close
	// without one means [Changed]. The end of the session closes every watch. Ending ctx frees
	// what the watch holds; whether its channel closes then is open.
	Watch(ctx context.Context, queue, name string) (<-chan Cause, error)

	// Delete removes the node that Create returned: rule 7. Where the node is gone already the
	// error matches [ErrGone], so that somebody who unlocks notices that the lock had been
	// taken away; that the reply of the same call was lost is no reason for it. Delete is safe
	// to repeat, however late: a repeat, or a first try after the session has seen that the
	// node is gone, never removes a node that took the same name since.
	//
	// After any other error the node may or may not be there.
	Delete(ctx context.Context, queue string, p Place) error

	// Done returns a channel that closes when the session has ended.
	//
	// Rule 8: Done closes, and Err turns non-nil, before the store can let another session
	// pass. That is judged by this process's own clocks, from the sending time of a request
	// which the store is known to have counted for the session. [Lease] does it. After a pause
	// of the process, or a step of the wall clock, Done may close a little later than Err
	// tells.
	Done() <-chan struct{}

	// Err returns nil while the session lives and after that, for ever, an error that matches
	// [ErrSessionEnded] and says why it ended.
	//
	// Rule 8: Err looks at the monotonic and at the wall clock when it is called, so that a
	// process that was paused or a machine that slept learns the truth before its timers have
	// run.
	Err() error

	// Close ends the session and releases everything it holds, here and in the store.
	//
	// Rule 9: the session's nodes are gone when Close returns nil. If the store cannot
	// be reached, Close returns an error that matches [ErrUnavailable] in bounded time
	// (a few seconds), and the store drops the nodes when the session times out there.
	// Rule 8 holds: Done is closed before the nodes go.
	//
	// A session that has ended before, because its lease has run out, may live on in
	// the store for a while, with its nodes. Close ends it there as well. Before Close
	// is called, the driver does not: holders may not have noticed the end yet.
	//
	// A Close after one that returned an error tries again; after one that returned nil
	// it does nothing and returns nil. Calls at the same time may share one try.
	Close() error
}

// Node is a member of a queue.
type Node struct {
	// Name is prefix and sequence, "web1-W-0000000007".
	Name string
	// Seq is the sequence, 7.
	Seq int64
	// Epoch tells the incarnations of a queue apart. A driver whose sequences can start over
	// (because a queue was removed and made again) sets it to a number that differs from one
	// incarnation to the next, alike in Create, Replace and List; Name and Epoch together name
	// one node for ever. A driver whose sequences never start over leaves it zero.
	Epoch int64
}

// Place is what Create won.
type Place struct {
	Node
	// Token is the fencing token: rule 3.
	Token int64
	// Alone is rule 5.
	Alone bool
}

// Cause is why a watch ended.
type Cause int

const (
	// Changed is the zero value: something changed, or may have. List again.
	Changed Cause = iota
	// Released says that the watched node was removed by [Releaser.Release]: its owner held the
	// lock exclusively and gave it back (rule 13).
	Released
)

// String returns "changed" or "released".
func (c Cause) String() string {
	if c == Released {
		return "released"
	}
	return "changed"
}
