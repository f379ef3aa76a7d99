package session

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Store is the store as one session sees it. The driver makes a Store for each
// session, with an ID that is unique in the store.
//
// All methods are safe for concurrent use, except Begin, during which no other
// method runs. Each ctx has a deadline and ends with the session. A method
// returns promptly once its ctx has ended. The end of a caller's ctx interrupts
// a request only if the ctx had more than a second left when the request began.
//
// An error matches one of these, or comes from the function:
//
//   - driver.ErrUnavailable: a retry may succeed.
//   - [Login]: a retry needs another password or certificate.
//   - driver.ErrSessionEnded: the store does not have the session, which then
//     ends.
//   - driver.ErrGone, driver.ErrStale or [Refused]: a change was not made, and
//     never will be. After an error of Do that is none of these, the outcome
//     counts as unknown.
//
// A Store that wraps another one has a method Unwrap() Store. Of the interfaces
// below, the session then uses only those that both implement.
type Store interface {
	// Begin adds the session. Its deadline is one session timeout from now by
	// the clock of the store. If the store has lost data, or may have, Begin may
	// instead return how long to wait before the next call.
	Begin(ctx context.Context, timeout time.Duration) (Begun, error)
	// Beat moves the session's deadline to one session timeout from now, without
	// waiting for other changes. It returns the time until any session's next
	// deadline, or zero to have Expire called after each heartbeat. A store that
	// is no [Expirer] ends expired sessions in Beat. If a loss of data has ended
	// the session, the error matches driver.ErrLostData.
	Beat(ctx context.Context) (next time.Duration, err error)
	// End removes the session, with its nodes. Changes of the session that
	// reach the store later have no effect. End also closes the store's
	// connections, whether or not it succeeds. It is called again after an
	// error, and does nothing if the session is not in the store. If the session
	// may not write into newer data than its own, the error matches
	// driver.ErrSessionEnded and is final: other sessions remove the nodes.
	End(ctx context.Context) error
	// Do makes a change, in one step. See [Kind].
	Do(ctx context.Context, c Change) (Result, error)
	// Cancel removes the nodes of Creates whose outcome is unknown. A Create that
	// reaches the store later has no effect. The session repeats Cancel until it
	// succeeds. A store that learns the outcome of each Create does nothing.
	Cancel(ctx context.Context, creates []Change) error
	// Look reads queues, each at one instant, and returns one Snapshot for each
	// Query, in the same order.
	Look(ctx context.Context, ask []Query) ([]Snapshot, error)
}

// Begun is the result of [Store.Begin].
type Begun struct {
	Wait       time.Duration // time until the next call; zero once begun
	Rest       time.Duration // time until sessions can begin, for messages
	Generation string        // see driver.SessionInfo
	Told       bool          // whether the driver has logged the reason
}

// Kind says what a [Change] does.
type Kind int

const (
	// Create appends a node with the Prefix and Data to the Queue: see rules 1
	// to 3 of package driver.
	Create Kind = iota
	// Delete removes the session's own node with the token of Place. If there
	// is none, the error matches driver.ErrGone.
	Delete
	// Replace renames the session's own node that has the token of Place, so
	// that its name begins with Prefix. If there is none, the error matches
	// driver.ErrGone.
	Replace
	// Remove removes the node that has both the name and the token of Place,
	// whichever session owns it. If there is none, the error matches
	// driver.ErrGone. Only a Store that is an [Inspector] gets this
	// request.
	Remove
	// SetValue stores Data as the value of the queue: see
	// driver.Inspector.SetValue. A Store that is no [Inspector] is never asked
	// to.
	SetValue
)

// Change is the argument of [Store.Do].
type Change struct {
	Kind   Kind
	Queue  string
	Place  driver.Place // for all kinds but Create
	Prefix string       // for Create and Replace
	Data   []byte       // for Create and SetValue; may be retained
	Cause  driver.Cause // for Delete
	// Number identifies a Create in the session. Numbers rise from 1.
	Number int64
	// Predecessor comes from driver.NodeSpec, for Create. The store may call it,
	// for example to announce the removal of only one node.
	Predecessor func(ahead []driver.Node) int
}

// Result is the result of [Store.Do]. Only Place is required.
type Result struct {
	// Place is the new node of a Create. For a Delete or Replace, it is the
	// node with its old name.
	Place   driver.Place
	Created time.Time // creation time by the store's clock
	// Snapshot is the queue after a Create or, if Version is set, after any
	// change. Nodes is nil if the store has not read them.
	Snapshot
	// Announced names the node ahead to which the session was already subscribed
	// before the Create: one name, [Every] for all nodes, or empty for none.
	Announced string
}

// Every stands for the names of all nodes of a queue.
const Every = "*"

// Node is a node in the store.
type Node struct {
	Name string
	// Token must be set for the session's own nodes. For other nodes it may be
	// zero. For those without an Owner it must be zero.
	Token int64
	// Proof is a secret of the node's readers, such as a hash of its data.
	// [Host.Gone] uses it to detect forged notices. Without notices it is empty.
	Proof string
	Owner string // see Inspector
	Data  []byte // see Inspector
}

// Query asks for a queue.
type Query struct {
	Queue string
	// Names are the nodes that the session needs, or nil for all. A store that
	// counts versions returns all nodes in either case.
	Names []string
	// Own is the name of the session's own node in Names. It is set only if Names
	// has the nodes of just one watch.
	Own string
	// Await is a node ahead of Own. Look waits for its removal, but only for some
	// milliseconds. It is empty unless Config.Awaits is set.
	Await string
	// Known is the latest version that the session knows, or zero.
	Known int64
}

// Snapshot is a queue at one instant.
type Snapshot struct {
	// Nodes holds the nodes in any order, including those of other programs. It
	// may be empty if Same is true.
	Nodes []Node
	// Version is new after each change of the queue's nodes. It is zero if the
	// store counts no versions.
	Version int64
	// Same reports whether Version is still Query.Known.
	Same bool
	// Released is the name of the node that was released last, by a Delete
	// whose Cause is driver.Released. It is empty if unknown.
	Released   string
	Value      []byte // see Inspector
	ValueToken int64  // token of the node that set the Value
	// Pause is how long the session can go without a poll of the queue, because
	// the store calls Host.Look when the turn of one of its nodes has come.
	Pause time.Duration
}

// Starter is a [Store] that calls methods of its session, such as [Host.Look].
type Starter interface {
	// Start passes the methods that the store may call. It is called before
	// Begin.
	Start(h Host)
}

// Notifier is a [Store] that announces the removal of nodes, by calling
// [Host.Gone] or [Host.Noticed].
type Notifier interface {
	Store
	Starter
	// Subscribe makes the store announce the removal of the nodes in q.Names, or
	// each change of the queue if q.Names is nil. Then it reads the queue, as Look
	// does. If q.Names is nil, and the store already announced each change before
	// the call, Subscribe may return the zero Snapshot instead.
	Subscribe(ctx context.Context, q Query) (Snapshot, error)
	// Listening reports whether announcements arrive at present, of removed nodes
	// or, if whole is true, of each change. If not, the session polls.
	Listening(queue string, whole bool) bool
}

// Admitter is a [Store] that sometimes has no room for the requests of callers.
type Admitter interface {
	// Admit waits until there is room for a caller's request. The session sends
	// the request after that. Admit's ctx ends with the caller's.
	Admit(ctx context.Context) error
}

// Expirer is a [Store] that ends expired sessions by a separate request. If its
// server ends them by itself, Expire does nothing.
type Expirer interface {
	// Expire ends sessions whose deadlines have passed. If it returns true, it
	// is called again at once, because there may be more. It must spare a
	// session whose heartbeat has arrived in the meantime.
	Expire(ctx context.Context) (more bool, err error)
}

// Inspector is a [Store] that supports the methods of driver.Inspector. If it
// is no [Reader], its Look returns the owner and data of each node, and the
// value.
type Inspector interface {
	// Walk returns the queues that have nodes, at least those at and below the
	// prefix, in any order. It may return a queue twice, and take many requests.
	// The session sets no time limit.
	Walk(ctx context.Context, prefix string) ([]string, error)
}

// Reader is an [Inspector] with requests for what its Look does not return. The
// methods are those of driver.Inspector.
type Reader interface {
	Inspector
	Read(ctx context.Context, queue, name string) (driver.NodeInfo, error)
	Value(ctx context.Context, queue string) (value []byte, token int64, err error)
}

// Tidier is a [Store] that has to remove what unused queues leave behind. Tidy is
// called when the session begins and then every hour, and again at once while
// it reports that there may be more.
type Tidier interface {
	Tidy(ctx context.Context) (more bool, err error)
}
