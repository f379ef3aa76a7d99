// This file is the contract between a driver and its caller. The terms that it uses
// and a list of its rules are in doc.go.

package driver

import "context"

// Driver opens connectors. A driver package registers its Driver with
// dlock.Register.
//
// A Driver is safe for use by many goroutines.
type Driver interface {
	// OpenConnector parses a data source name (dsn). It does no I/O. An error
	// names the wrong part of the dsn. It never repeats a password.
	OpenConnector(dsn string) (Connector, error)
}

// Connector makes sessions with one store. All these sessions have the same
// settings.
//
// A Connector is safe for use by many goroutines.
type Connector interface {
	// Connect begins a new session. It returns when the store has confirmed the
	// session, or promptly after ctx has ended. If ctx ends after Connect has
	// returned, the session lives on.
	//
	// After an error nothing is left in this process. There is one exception: if ctx
	// has ended, a call of a client library that cannot be interrupted may go on. When
	// that call returns, the driver frees everything that it has made. A session that
	// the store may have begun ends there within a session timeout.
	//
	// An error that may pass by itself matches [ErrUnavailable]. So does the error if
	// the store has confirmed the session after the session timeout.
	Connect(ctx context.Context) (Session, error)
}

// Session is one session with a store. A session that has ended never lives
// again: a caller that needs another session calls [Connector.Connect].
//
// Rule 10, methods:
//
//   - All methods may be called from many goroutines at once.
//   - A ctx is for its call only. The call returns promptly when ctx ends. If the
//     call has returned a watch, the watch lives on after the end of ctx.
//   - After the end of the session, each method that takes a ctx returns an error
//     that matches [ErrSessionEnded].
//   - An error matches [ErrUnavailable] if it may pass by itself, and only then.
//     Package recipes repeats a call after such an error, and after no other.
//   - If ctx has ended, the error may match ErrUnavailable, or the error of ctx,
//     or both. Otherwise it matches no error of package context, also if the
//     driver has limited the time of the request itself.
//   - If [CheckQueue] refuses the queue, or [CheckPrefix] the prefix, the error
//     matches [ErrBadName], and the driver sends no request to the store.
//
// Rule 11, nothing outlives Close: Close ends the calls in flight and waits for
// them. Once it has returned, the session sends no request, and no goroutine,
// timer, connection or watch of it is left.
//
// A driver may rely on this: a contender that has an open watch of its own node
// and of nodes ahead does not act as a holder. If it stops that watch before the
// watch has sent Released or has ended, it calls List before it acts as a holder.
// So the open watches tell a driver which nodes of its session belong to waiters.
// The driver has to treat every other node as the node of a holder.
type Session interface {
	// Create appends a node to the queue and returns the node's place. If the
	// queue is missing, Create makes it.
	//
	// Rule 1, order: once any session has listed a node, or the Create of the
	// node has returned, no new node appears before it. The reason: a contender
	// that lists the queue and finds its node at the head holds the lock. If
	// another node appeared before it later, there would be two holders.
	//
	// Rule 2, names: the name of the node is the prefix and the sequence as
	// [FormatName] joins them. It is unique among the nodes of the queue. If a
	// queue is removed and made again, its sequences may start over. Then
	// Node.Epoch tells the old and the new queue apart.
	//
	// A queue may have any name that [CheckQueue] accepts. It is never a node of
	// the queue above it, even if its last segment looks like a node: the queue
	// "orders/order-1234567890" is no node of the queue "orders". If a store
	// keeps queues and nodes in one place, the driver stores such a segment under
	// another name, from which it can restore the segment.
	//
	// Rule 3, tokens: Place.Token rises strictly in the order of creation within
	// a queue, for the whole history of the store. It still rises if the queue
	// became empty, if the queue was removed and made again, and if the sequence
	// started over. If the store can lose its latest data, the driver computes a
	// token from the last one and the clock: max(last+1, clock).
	//
	// Rule 4, all or nothing: if Create returns an error, no node of that call
	// stays. This includes a ctx that ended, a reply that was lost, and a request
	// that reaches the store only later. If a node may exist, the driver removes it
	// as soon as the store can be reached, for as long as the session lives. (At
	// the end of the session the store removes it.) If the node exists, and only
	// the list or the watch of [Joined] is missing, Create returns the place
	// without them, and no error.
	//
	// Rule 5, ahead: see [Joined].
	Create(ctx context.Context, queue string, n NodeSpec) (Joined, error)

	// List returns the nodes of the contenders in the queue, oldest first: see
	// rule 1. A queue that does not exist is empty.
	//
	// The list holds all nodes in the queue that Create has made. It also holds the
	// nodes of other programs, if [ParseName] accepts the names of these nodes. The
	// sequence of such a foreign node decides its rank. Rule 1 does not hold for
	// foreign nodes: the sequences of later nodes need not take them into account, so
	// Create may make a node that ranks before a foreign node. A driver may list more
	// foreign nodes if its store orders them among its own: zkdriver lists every
	// node whose name ends in ten digits. The list holds no other node. Recipes
	// treat a node as exclusive unless its name is the name of a reader.
	//
	// The list is at least as new as everything that this session has done and
	// seen before. So it holds a node that Create has returned. It does not hold a
	// node whose Delete has returned nil, nor the node for whose release a watch
	// has sent Released.
	List(ctx context.Context, queue string) ([]Node, error)

	// Watch watches the session's own node p, and nodes ahead of it. The watch
	// ends when one of these nodes is not in the queue under its name any more:
	// the node was deleted or replaced, its session was closed or expired, or its
	// queue was removed.
	//
	// If p has a token, the watch is of the node with that token. It ends when that
	// node is gone, even if another node has taken the name. If p has no token, the
	// watch is of any node with the name of p. The nodes ahead are always watched
	// by their names alone.
	//
	// Rule 6, watch: the watch is armed when Watch returns. If one of its nodes
	// is removed or replaced after that, the watch ends, or sends Released as
	// rule 13 says. If p is not in the queue, the channel of the watch is
	// closed when Watch returns. The end of the session ends every watch.
	//
	// A watch may end early, for any reason: its end only tells the caller to list
	// the queue again. The store may not announce a removal, or its announcement
	// may be lost, for example because a connection has fallen silent. Then the
	// driver notices the removal within a session timeout. If Watch returns an
	// error, nothing is armed.
	//
	// Rule 13, released: before it ends, a watch may send [Released] once. This
	// says that a node ahead was removed by a Delete with the cause Released,
	// while p was in the queue. After that the watch goes on, for p alone. If the
	// driver knows by then that p has gone, it has closed the channel as well.
	//
	// A waiter that receives Released, and whose watch has not ended, takes the
	// lock without another List. So a watch that sent Released for anything else
	// would make two holders. In particular, it does not send Released for a
	// Delete with another cause, a Replace, the end of a session, a removal by an
	// operator, or a reconnect. A driver need not send Released at all.
	Watch(ctx context.Context, queue string, p Place, ahead ...Node) (Watch, error)

	// WatchQueue watches the members of the queue. The watch ends when a node
	// is added, removed or replaced after the watch was armed. So a caller arms
	// the watch first, and lists the queue after that. Such a watch never sends
	// Released. Otherwise rule 6 holds as for Watch.
	WatchQueue(ctx context.Context, queue string) (Watch, error)

	// Delete removes the node p, which Create has returned.
	//
	// Rule 7, delete: if the node was gone before the call, the error matches
	// [ErrGone]. So a caller that unlocks learns that the lock was taken away.
	// If the driver sends the request again because a reply was lost, and the
	// node is not there any more, Delete returns nil: the first request has
	// removed the node.
	//
	// A caller may repeat Delete, however late. If an operator has removed the
	// queue, the node of another contender may have the name of p now. A repeat
	// never removes that node. The first Delete of p may remove that node only if
	// the session has not seen that p is gone. After a Delete that returned nil,
	// or an error that matches [ErrUnavailable], a repeat may return nil or an
	// error that matches ErrGone. After an error that does not match ErrGone, the
	// node may or may not be in the queue.
	//
	// The cause is for the watches of the contenders behind p. The caller
	// passes Released if it held an exclusive lock and gives it back, and
	// Changed otherwise. A driver may ignore the cause.
	Delete(ctx context.Context, queue string, p Place, why Cause) error

	// Done returns a channel that closes when the session has ended.
	//
	// Rule 8, session end: when the store drops a session that it has not heard
	// from for the session timeout, other sessions can get its locks. Before that,
	// Done closes, and Err returns an error. The reason: a holder that does not
	// know the end of its session would go on beside the next holder.
	//
	// The store may be out of reach at that time. So the driver decides by the
	// clocks of this process alone. It counts from the sending time of a request,
	// if the store is known to have counted that request for the session. [Lease]
	// implements this. After a pause of the process, or a step of the wall clock,
	// Done may close a little later than Err returns an error.
	//
	// A store may also drop a session at once, for example if an operator asks
	// for it. The session then ends with the next answer of the store.
	Done() <-chan struct{}

	// Err returns nil while the session lives. After that it always returns an
	// error that matches [ErrSessionEnded] and says why the session has ended.
	//
	// Rule 8, session end: each call of Err reads the monotonic and the wall clock.
	// So Err reports the end of the session before any timer has run, even if the
	// process was paused or the machine slept.
	Err() error

	// Close ends the session. It frees everything that the session holds, in this
	// process and in the store.
	//
	// Rule 9, close: when Close returns nil, the nodes of the session are gone. A
	// Create that reaches the store after that leaves no node.
	//
	// If the store cannot be reached, Close returns an error that matches
	// [ErrUnavailable] within a few seconds. The store then removes the nodes when
	// it drops the session. Rule 8 holds: Done closes before the nodes go.
	//
	// A session that has ended because its lease has run out may still live in
	// the store, with its nodes. Close ends it there as well. The driver does not
	// end it there before Close is called, because a holder may not have noticed
	// the end yet.
	//
	// If Close has returned an error, the next Close tries again. If Close has
	// returned nil, the next one does nothing and returns nil. Calls at the same
	// time may share one try.
	Close() error
}

// Node is a node of a queue, as List shows it.
type Node struct {
	// Name is the prefix and the sequence, such as "web1-W-0000000007".
	Name string
	// Seq is the sequence, such as 7.
	Seq int64
	// Epoch tells a queue that was removed from the queue that was made later
	// under the same name. If the sequences of a store can start over, the
	// driver sets Epoch to a number that is new each time that this happens.
	// Create, Replace and List return the same number for a node. Name and
	// Epoch together then name one node for ever. If sequences never start
	// over, the driver leaves Epoch zero.
	Epoch int64
}

// Place is a node with the fencing token that Create gave it: rule 3.
type Place struct {
	Node
	// Token is zero if the caller knows the node only by its name.
	Token int64
}

// NodeSpec describes the node that Create makes.
type NodeSpec struct {
	// Prefix is the beginning of the node's name: see [CheckPrefix].
	Prefix string
	// Data is stored with the node. It differs in every call of Create, so that
	// a driver can recognise the node of a call whose reply was lost.
	Data []byte
	// Predecessor returns the index of the node that this contender has to wait
	// for, if the nodes ahead of it are these. It returns -1 if the contender
	// need not wait. It has no effects and does not block. If Predecessor is nil,
	// the caller wants no watch. A driver may ignore Predecessor.
	Predecessor func(ahead []Node) int
}

// Joined is the result of Create: a place, and the part of the queue that the
// driver knows already. Only the place is required. Recipes ask for the rest if
// it is missing.
type Joined struct {
	Place
	// Known reports whether the driver knows the nodes ahead. If it is false,
	// Ahead says nothing.
	Known bool
	// Ahead holds the nodes before this one, oldest first.
	//
	// Rule 5, ahead: it holds all nodes that List would have returned before this
	// node, at one instant at which this node was in the queue. For example, a
	// driver may take it from a list that follows the create on the same
	// connection.
	Ahead []Node
	// Watch is what Watch would have returned for this place and the node ahead
	// that Predecessor has chosen. Both nodes are in the queue at the instant at
	// which the driver arms the watch. If one of them goes later, the watch reports
	// that as rules 6 and 13 say. It is the zero Watch if the driver has no such
	// watch, if Predecessor is nil, and if Predecessor returned -1.
	Watch Watch
}

// Alone reports whether it is known that no node is ahead.
func (j Joined) Alone() bool { return j.Known && len(j.Ahead) == 0 }

// Watch is a watch of nodes or of a queue. The zero Watch watches nothing.
type Watch struct {
	// C closes when the watch ends. Before that it may send Released.
	C    <-chan Cause
	stop func()
}

// NewWatch returns a watch with the channel c. The function stop frees what the
// watch holds. It must not block. It may be called more than once, also after the
// end of the watch. A nil stop says that there is nothing to free.
func NewWatch(c <-chan Cause, stop func()) Watch { return Watch{C: c, stop: stop} }

// Stop frees what the watch holds. It does not block, and may be called more than
// once. After Stop, C may close or may stay open.
func (w Watch) Stop() {
	if w.stop != nil {
		w.stop()
	}
}

// Cause says why a node was deleted. A caller gives it to Delete, and a watch
// may send it to the waiter.
type Cause int

const (
	// Changed is the zero value. In a call of Delete it stands for every cause
	// but Released. A receive from a watch that has ended gives Changed as
	// well: it says only that the caller should list the queue again.
	Changed Cause = iota
	// Released says that a holder held the lock exclusively and gave it back:
	// rule 13.
	Released
)

// String returns "changed" or "released".
func (c Cause) String() string {
	if c == Released {
		return "released"
	}
	return "changed"
}
