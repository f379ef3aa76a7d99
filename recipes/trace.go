package recipes

import (
	"context"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Trace is a set of hooks, in the manner of net/http/httptrace. Any of them may be nil.
//
// Hooks run on the goroutine that does the work, possibly on several at once,
// and hold it up: keep them short, and do not call the lock or its client from
// them. A hook that panics inside Lock or RLock ends that call, and its node is
// removed. Connected, SessionEnded, Lost and Reaped may run on goroutines of the
// client, where a panic ends the program.
//
// The first argument of a hook is the context of the call that the hook reports
// on, or one derived from it, so that a span finds its parent. Each hook says
// which call that is. A context that outlives its call keeps the values and
// never ends. Where no call is the reason, the context is context.Background.
// With [WithRetention] the client contends on behalf of several calls: Queued,
// Waiting and Retrying then get context.Background.
//
// Granted and Failed add up: each call of Lock, RLock, TryLock and TryRLock
// that is no re-entry ends in one of them. Each Granted is followed by one
// Released or one Lost, with retention as well. Each Connected without an error
// is followed by one SessionEnded.
type Trace struct {
	// Connected is called after every attempt to connect, with the context of
	// the call that caused the attempt. Other calls may wait for the same
	// attempt.
	Connected func(context.Context, ConnectedInfo)
	// SessionEnded is called when a session has ended. The context is
	// context.Background.
	SessionEnded func(context.Context, SessionEndedInfo)
	// Queued is called when a node has joined the queue, with the context of
	// Lock or RLock.
	Queued func(context.Context, QueuedInfo)
	// Waiting is called before a contender waits, and again after each wake-up
	// that did not let it in, with the context of Lock or RLock.
	Waiting func(context.Context, WaitingInfo)
	// Granted is called when the lock was won, just before Lock or RLock
	// returns, with the context of that call. It is not called for a re-entry.
	Granted func(context.Context, GrantedInfo)
	// Failed is called when Lock, RLock, TryLock or TryRLock is about to return
	// an error, with the context of that call; also for a re-entry.
	Failed func(context.Context, FailedInfo)
	// Retrying is called before an operation is repeated, with the context of
	// Lock or RLock.
	Retrying func(context.Context, RetryingInfo)
	// Downgraded is called when the store was told that an exclusive lock has
	// become shared, or could not be told, with the context of Downgrade; where
	// Unlock or the background tells the store, with context.Background. It is
	// not called where the driver has no Replacer.
	Downgraded func(context.Context, DowngradedInfo)
	// Released is called when a lock was given back: by Unlock, and after a
	// re-entry by the last of the Unlocks. The node is gone then, or it could
	// not be removed; with retention it may stay for other goroutines. It is
	// not called where Unlock finds that the lock was lost. Unlock takes no
	// context: the hook gets the values of the context with which the lock was
	// taken.
	Released func(context.Context, ReleasedInfo)
	// Lost is called when a lock was lost, also to Client.Close: the error
	// matches ErrClosed then. The hook gets the values of the context with
	// which the lock was taken.
	Lost func(context.Context, LostInfo)
	// Reaped is called when a removal or a downgrade that the store had not
	// confirmed at once is done, or was given up: the session has ended, or the
	// store refuses the removal. The context is context.Background.
	Reaped func(context.Context, ReapedInfo)
}

// with returns hooks that call those of t and then those of u.
func (t *Trace) with(u *Trace) *Trace {
	return &Trace{
		Connected:    both(t.Connected, u.Connected),
		SessionEnded: both(t.SessionEnded, u.SessionEnded),
		Queued:       both(t.Queued, u.Queued),
		Waiting:      both(t.Waiting, u.Waiting),
		Granted:      both(t.Granted, u.Granted),
		Failed:       both(t.Failed, u.Failed),
		Retrying:     both(t.Retrying, u.Retrying),
		Downgraded:   both(t.Downgraded, u.Downgraded),
		Released:     both(t.Released, u.Released),
		Lost:         both(t.Lost, u.Lost),
		Reaped:       both(t.Reaped, u.Reaped),
	}
}

func both[Info any](first, second func(context.Context, Info)) func(context.Context, Info) {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return func(ctx context.Context, i Info) {
		first(ctx, i)
		second(ctx, i)
	}
}

// keep returns what the hooks that run after the call need of its context.
func (t *Trace) keep(ctx context.Context) context.Context {
	if t.Released == nil && t.Lost == nil {
		return nil
	}
	return context.WithoutCancel(ctx)
}

// ConnectedInfo belongs to Trace.Connected.
type ConnectedInfo struct {
	Took    time.Duration
	Session driver.SessionInfo // what the driver knows of the session; zero after an error
	Err     error              // nil: the client has a session
}

// SessionEndedInfo belongs to Trace.SessionEnded.
type SessionEndedInfo struct {
	Err error // why the session has ended; matches ErrClosed after Client.Close
}

// QueuedInfo belongs to Trace.Queued.
type QueuedInfo struct {
	Lock  string
	Place driver.Place
}

// WaitingInfo belongs to Trace.Waiting.
type WaitingInfo struct {
	Lock, Node  string
	Predecessor string // the node that it waits for; any client may have named it
	Position    int    // in the queue, from 1
}

// String returns one line for people; the names are quoted where they would not print.
func (i WaitingInfo) String() string {
	return fmt.Sprintf("%s: %s waits behind %s, %s in the queue", printable(i.Lock), printable(i.Node), printable(i.Predecessor), ordinal(i.Position))
}

// GrantedInfo belongs to Trace.Granted.
type GrantedInfo struct {
	Lock, Node string
	Mode       Mode
	Token      int64
	Waited     time.Duration // since Lock or RLock was called
}

// FailedInfo belongs to Trace.Failed.
type FailedInfo struct {
	Lock   string
	Node   string // the last one that the call had in the queue; empty if there was none
	Mode   Mode
	Try    bool          // the call was TryLock or TryRLock
	Waited time.Duration // since the call began
	Err    error         // what the call returns
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
