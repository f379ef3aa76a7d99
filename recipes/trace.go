package recipes

import (
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Trace is a set of hooks, in the manner of net/http/httptrace. Any of them may be nil. They
// run on the goroutine that does the work, possibly on several at once, and hold it up: keep
// them short, and do not call the lock or its client from them. A hook that panics inside Lock
// or RLock ends that call, and its node is removed. Connected, Ended, Lost and Reaped may run
// on goroutines of the client, where a panic ends the program.
type Trace struct {
	// Connected is called after every attempt to connect.
	Connected func(ConnectedInfo)
	// Ended is called when a session has ended, with the reason.
	Ended func(error)
	// Queued is called when a node has joined the queue.
	Queued func(QueuedInfo)
	// Waiting is called before a contender waits, and again after each wake-up that did not let
	// it in.
	Waiting func(WaitingInfo)
	// Granted is called when the lock was won, just before Lock or RLock returns. It is not
	// called for a re-entry.
	Granted func(GrantedInfo)
	// Retrying is called before an operation is repeated.
	Retrying func(RetryingInfo)
	// Downgraded is called when the store was told that an exclusive lock has become shared, or
	// could not be told. It is not called where the driver has no Replacer.
	Downgraded func(DowngradedInfo)
	// Released is called when the lock's node was given back, or could not be.
	Released func(ReleasedInfo)
	// Lost is called when a lock was lost.
	Lost func(LostInfo)
	// Reaped is called when a removal or a downgrade that the store had not
	// confirmed at once is done, or was given up: the session has ended, or the
	// store refuses the removal.
	Reaped func(ReapedInfo)
}

// ConnectedInfo belongs to Trace.Connected.
type ConnectedInfo struct {
	Took time.Duration
	Err  error // nil: the client has a session
}

// QueuedInfo belongs to Trace.Queued.
type QueuedInfo struct {
	Lock  string
	Place driver.Place
}

// WaitingInfo belongs to Trace.Waiting.
type WaitingInfo struct {
	Lock, Node string
	Behind     string // the node in the way; anybody may have named it
	Position   int    // in the queue, from 1
}

// String returns one line for people; the names are quoted where they would not print.
func (i WaitingInfo) String() string {
	return fmt.Sprintf("%s: %s waits behind %s, %s in the queue", printable(i.Lock), printable(i.Node), printable(i.Behind), ordinal(i.Position))
}

// GrantedInfo belongs to Trace.Granted.
type GrantedInfo struct {
	Lock, Node string
	Mode       Mode
	Token      int64
	Waited     time.Duration // since Lock or RLock was called
}

// RetryingInfo belongs to Trace.Retrying.
type RetryingInfo struct {
	Lock  string
	Err   error
	Delay time.Duration
}

// DowngradedInfo belongs to Trace.Downgraded.
type DowngradedInfo struct {
	Lock, Node string // Node is the name as it is now
	Err        error  // nil, or why the node may still stand as exclusive in the store
}

// ReleasedInfo belongs to Trace.Released.
type ReleasedInfo struct {
	Lock, Node string
	Held       time.Duration
	Err        error // what Unlock returns
}

// LostInfo belongs to Trace.Lost.
type LostInfo struct {
	Lock, Node string
	Held       time.Duration
	Err        error // matches ErrLost
}

// ReapedInfo belongs to Trace.Reaped.
type ReapedInfo struct {
	Lock, Node string
	Tries      int
	Err        error // nil, or matches driver.ErrSessionEnded, or is the store's refusal
}
