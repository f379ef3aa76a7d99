// This file defines the contract between a driver and its caller. doc.go
// explains the terms and summarizes the rules.

package driver

import (
	"context"
	"time"
)

// Driver opens connectors. Driver packages register theirs with dlock.Register.
//
// A Driver is safe for concurrent use.
type Driver interface {
	// OpenConnector parses a data source name. It does no I/O. An error names the
	// invalid part, but never repeats a password.
	OpenConnector(dsn string) (Connector, error)
}

// Connector makes sessions with one store, all with the same settings.
//
// A Connector is safe for concurrent use.
type Connector interface {
	// Connect begins a new session. It returns once the store has confirmed the
	// session, or promptly after ctx ends. A later end of ctx does not end the
	// session.
	//
	// The error matches [ErrUnavailable] if a later attempt may succeed, also if
	// the confirmation took longer than the session timeout.
	//
	// A failed Connect leaves nothing behind in this process, except that a client
	// library call that cannot be interrupted may outlast ctx. The driver cleans
	// up when that call returns. If the store has begun a session nevertheless,
	// the store ends it within a session timeout.
	Connect(ctx context.Context) (Session, error)
}

// Session is one session with a store. A session that has ended never comes
// back to life. The comments below give the numbered rules of the package
// comment in full.
//
// Rule 10, methods:
//
//   - All methods are safe for concurrent use.
//   - A ctx limits only its own call, which returns promptly when ctx ends. A
//     watch that the call has returned lives on.
//   - Each request has a time limit of the driver's own.
//   - Nobody knows what an interrupted change has done. Package recipes
//     therefore gives Delete a ctx that lasts for at least 2 s, and Create one
//     that lasts for a minute, or at least 50 ms longer than the ctx of the
//     user's call.
//   - After the end of the session, each method that takes a ctx returns an
//     error that matches [ErrSessionEnded].
//   - An error matches [ErrUnavailable] if and only if a retry may succeed.
//     Package recipes retries after such errors and no others.
//   - If ctx has ended, the error may match ErrUnavailable, the error of ctx,
//     or both. Otherwise it matches no error of package context, even after a
//     time limit of the driver's own.
//   - If [CheckQueue] or [CheckPrefix] rejects a name, the error matches
//     [ErrBadName], and the driver sends no request to the store.
//
// Rule 11, nothing outlives Close: Close ends the calls in flight and waits for
// them. Once it has returned, the session sends no more requests and leaves no
// goroutine, timer, connection or watch behind.
type Session interface {
	// Create appends a node to the queue and returns the node's place. It creates
	// the queue if necessary.
	//
	// Rule 1, order: once any session has listed a node, or the node's Create has
	// returned, no new node appears before it. Otherwise there could be two
	// holders, because a contender whose node is the first holds the lock.
	//
	// Rule 2, names: the node's name is the prefix and the sequence, joined as by
	// [FormatName]. It is unique among the nodes of the queue. If a queue is
	// removed and created again, its sequences may start over, with another
	// Node.Epoch.
	//
	// A queue may have any name that [CheckQueue] accepts, and is never a node of
	// the queue above it: "orders/order-1234567890" is not a node of the queue
	// "orders". A store that keeps queues and nodes in one place stores such a
	// segment under another name, from which the driver can restore it.
	//
	// Rule 3, tokens: Place.Token rises strictly in the order of creation within a
	// queue, for the whole history of the store, even if the queue becomes empty,
	// is removed and created again, or starts its sequence over. If the store can
	// lose its latest data, the driver computes each token from the last one and
	// the clock: max(last+1, clock).
	//
	// Rule 4, all or nothing: a Create that returns an error leaves no node, even
	// if ctx ended, the reply was lost, or the request reaches the store later. If
	// the node may exist, the driver removes it as soon as it can reach the store,
	// or the store does when the session ends. Such nodes block their queues, and
	// a broken connection can leave many, so the driver sends at most a few
	// requests for each. If only the list or the watch of [Joined] is missing,
	// Create returns the place and no error.
	//
	// Rule 5, ahead: see [Joined].
	Create(ctx context.Context, queue string, n NodeSpec) (Joined, error)

	// List returns the contenders' nodes in the queue, oldest first: see rule 1. A
	// queue that does not exist is empty.
	//
	// The list holds every node that Create has made and that is still in the
	// queue. It also holds foreign nodes: nodes of other programs whose names
	// [ParseName] accepts. It holds no others, unless the store orders more
	// foreign nodes among its own: zkdriver lists every node whose name ends in
	// ten digits. Package recipes takes a foreign node for a writer's, unless its
	// prefix ends in "-R-".
	//
	// A foreign node is ordered by its sequence, and is not covered by rule 1:
	// Create may make a node that comes before it.
	//
	// The list is at least as new as everything that this session has done and
	// seen. For example, it holds a node that Create has returned, and lacks a
	// node whose Delete has returned nil, or whose release a watch has reported.
	List(ctx context.Context, queue string) ([]Node, error)

	// Watch watches the node p, usually the session's own, and nodes ahead of it.
	// The watch ends when one of these nodes is no longer in the queue under its
	// name, because it was deleted or replaced, its session was closed or expired,
	// or its queue was removed.
	//
	// If p has a token, the watch ends when the node with that token is gone, even
	// if another node has taken the name. If p has no token, it may be a node of
	// another session, and is watched by name alone. The nodes ahead are always
	// watched by name alone.
	//
	// Rule 6, watch: the watch is armed when Watch returns. If one of its nodes is
	// removed or replaced after that, the watch ends, or sends Released under rule
	// 13. If p is not in the queue, the watch's channel is closed by the time
	// Watch returns. The end of the session ends every watch. If Watch returns an
	// error, nothing is armed.
	//
	// A watch may end early, for any reason, because its end only tells the caller
	// to list the queue again. If the store does not announce a removal, or the
	// announcement is lost, the driver notices the removal within a session
	// timeout.
	//
	// Rule 13, released: before it ends, a watch may send [Released] once, which
	// says that a node ahead was removed by a Delete with the cause Released while
	// p was in the queue. After that the watch goes on for p alone. If the driver
	// already knows that p is gone, it closes the channel as well.
	//
	// A waiter whose watch sends Released and has not ended takes the lock without
	// listing the queue again. Released must therefore not be sent for anything
	// else, such as a Delete with another cause, a Replace, the end of a session,
	// a removal by an operator, or a reconnect. A driver need not send Released at
	// all.
	Watch(ctx context.Context, queue string, p Place, ahead ...Node) (Watch, error)

	// WatchQueue watches the members of the queue. The watch ends when a node
	// is added, removed or replaced. To miss no change, callers arm the watch
	// before they list the queue. The watch never sends Released. Otherwise rule
	// 6 holds as for Watch.
	WatchQueue(ctx context.Context, queue string) (Watch, error)

	// Delete removes the node p, which Create has returned.
	//
	// Rule 7, delete: if the node was gone before the call, the error matches
	// [ErrGone], so that a caller that unlocks learns that it had lost the lock.
	// If the driver sends the request again after a lost reply and finds the node
	// gone, Delete returns nil.
	//
	// Callers may repeat Delete, however late. By then, an operator may have
	// removed the queue, and another contender's node may have the name of p. A
	// repeat must not remove that node. The first call may remove it if the
	// session has not seen that p is gone.
	//
	// If Delete has returned nil or an error that matches [ErrUnavailable], a
	// repeat may return nil or an error that matches ErrGone. After any error that
	// does not match ErrGone, the node may or may not be in the queue.
	//
	// The cause is for the watches of the contenders behind p. The caller passes
	// Released when it gives back an exclusive lock, and Changed otherwise. A
	// driver may ignore the cause.
	Delete(ctx context.Context, queue string, p Place, why Cause) error

	// Replace gives the session's own node p another prefix and returns the new
	// place. Sequence, epoch, token, data and owner stay the same. The node may be
	// a holder's or a waiter's. Package recipes uses Replace, for example, when a
	// writer becomes a reader.
	//
	// Rule 12, replace: at any time List shows exactly one of the two names.
	// Replace ends the watches of the node under its old name, and those of the
	// queue.
	//
	// If the node is gone, the error matches [ErrGone]. After any other error the
	// node may have either name. The caller may then repeat Replace with the same
	// arguments. Delete removes the node under its current name, and accepts any
	// place that the node has had.
	Replace(ctx context.Context, queue string, p Place, prefix string) (Place, error)

	// Done returns a channel that is closed when the session has ended.
	//
	// Rule 8, session end: a store drops a session that it has not heard from for
	// the session timeout. Before it does so, Done is closed, and Err returns an
	// error. Otherwise another session could get a lock while its old holder is
	// still working.
	//
	// The store may be out of reach by then, so the driver decides by this
	// process's clocks alone. It counts from the sending of the latest request
	// that is known to have kept the session alive. [Lease] implements this. After
	// a pause of the process, or a step of the wall clock, Done may be closed a
	// little later than Err returns an error.
	//
	// A store may also drop a session at once, for example for an operator. The
	// session then ends with the store's next answer.
	Done() <-chan struct{}

	// Err returns nil while the session lives. After that, it always returns an
	// error that matches [ErrSessionEnded] and says why the session ended.
	//
	// Rule 8, session end: each call reads the monotonic and the wall clock, so it
	// reports the end before any timer has run, even after a pause of the process
	// or a sleep of the machine.
	Err() error

	// Close ends the session and frees everything that it holds, in this process
	// and in the store.
	//
	// Rule 9, close: when Close returns nil, the session's nodes are gone. A
	// Create that reaches the store after that leaves no node. After a loss of
	// data, nodes that were not lost may stay until the store drops the session.
	//
	// If the store cannot be reached, Close returns an error that matches
	// [ErrUnavailable] within a few seconds. The store then removes the nodes when
	// it drops the session. Rule 8 still holds: Done is closed before the nodes
	// go.
	//
	// A session whose lease has run out may still live in the store, with its
	// nodes. Close ends it there, too. The driver must not do so earlier, because
	// a holder may not have noticed the end yet.
	//
	// After an error, the next Close tries again. After a Close that returned nil,
	// the next is a no-op and returns nil. Concurrent calls may share one attempt.
	Close() error
}

// Node is a node of a queue, as List shows it.
type Node struct {
	// Name is the prefix and the sequence, such as "web1-W-0000000007".
	Name string
	// Seq is the sequence, such as 7.
	Seq int64
	// Epoch distinguishes queues that existed one after the other under the
	// same name. A driver sets it to a new number whenever the sequences of
	// a queue start over, so that Name and Epoch together identify a node
	// forever. The number is the same in Create, Replace and List. It is
	// zero if the store's sequences never start over.
	Epoch int64
}

// Place is a node together with its fencing token: see rule 3 at
// [Session.Create].
type Place struct {
	Node
	// Token is zero if the caller knows only the node's name.
	Token int64
}

// NodeSpec describes a node to create.
type NodeSpec struct {
	// Prefix is the beginning of the node's name. See [CheckPrefix].
	Prefix string
	// Data is stored with the node. It is different in every call of Create, so
	// that a driver can recognize the node after a lost reply. The caller may
	// reuse the slice once Create has returned.
	Data []byte
	// Predecessor chooses the node that this contender has to wait for. Given the
	// nodes ahead, it returns the index of that node, or -1 if the contender need
	// not wait. It has no side effects and does not block. If Predecessor is nil,
	// the caller wants no watch. A driver may ignore Predecessor.
	Predecessor func(ahead []Node) int
}

// Joined is the result of Create: a place, and optionally what the driver
// already knows about the queue. Package recipes sends further requests for
// what is missing.
type Joined struct {
	Place
	// Created is the creation time by the store's clock, as NodeInfo.Created,
	// or zero if the driver does not know it without another request.
	Created time.Time
	// Known reports whether the driver knows the nodes ahead. If it is false,
	// Ahead is meaningless.
	Known bool
	// Ahead holds the nodes before this one, oldest first.
	//
	// Rule 5, ahead: Ahead is complete, as if List had been called at some instant
	// when this node was in the queue. For example, a driver may take the nodes
	// from a list request that follows the create on the same connection.
	Ahead []Node
	// Behind reports whether the list from which Ahead was taken also shows a node
	// behind this one. If so, the contender behind may already be waiting for this
	// node. Behind is always false if Create makes the node and lists the queue in
	// one step, because this node is then the last.
	Behind bool
	// Watch is an optional watch of this place and of the node that Predecessor
	// chose, as returned by [Session.Watch]: see rules 6 and 13 there. The driver
	// must arm it while both nodes are in the queue. Watch is zero if the driver
	// offers none, if Predecessor is nil, or if Predecessor returned -1.
	Watch Watch
}

// Alone reports whether the driver knows that no node is ahead.
func (j Joined) Alone() bool { return j.Known && len(j.Ahead) == 0 }

// Watch is a watch of nodes or of a queue. The zero Watch watches nothing.
type Watch struct {
	// C is closed when the watch ends. Before that it may send Released.
	C    <-chan Cause
	stop func()
}

// NewWatch returns a Watch that receives from c. The function stop, which may
// be nil, frees the watch's resources. It must not block, and may be called
// more than once, even after the end of the watch.
func NewWatch(c <-chan Cause, stop func()) Watch { return Watch{C: c, stop: stop} }

// Stop frees the watch's resources. It does not block, and may be called more
// than once. After Stop, C may be closed or stay open.
func (w Watch) Stop() {
	if w.stop != nil {
		w.stop()
	}
}

// Cause says why a node was deleted. Callers pass it to Delete, and a watch may
// pass it on to the waiter.
type Cause int

const (
	// Changed, the zero value, covers every cause but Released. A receive
	// from the closed channel of a watch yields Changed, which only tells
	// the caller to list the queue again.
	Changed Cause = iota
	// Released means that the holder of an exclusive lock has given it
	// back. See rule 13 at [Session.Watch].
	Released
)

func (c Cause) String() string {
	if c == Released {
		return "released"
	}
	return "changed"
}
