package recipes

import (
	"context"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Trace is a set of hooks, like that of net/http/httptrace. Any of them may be
// nil.
//
// Hooks run on the goroutine that does the work, possibly on several goroutines
// at once, and delay it. Keep them short, and do not call the lock or its
// client from them. If a hook panics, the same hook of other traces is called all
// the same. The panic ends the call on whose goroutine the hook runs. A call of
// Lock, RLock, TryLock or TryRLock then holds nothing, and its node is removed.
// Connected, SessionEnded, Lost, Reaped and Downgraded may run on goroutines of
// the client, where a panic ends the program, and with [WithRetention] so may
// Queued, Waiting and Retrying.
//
// The first argument of a hook is the context of the call that the hook reports
// on, or a context derived from it, so that a span finds its parent. The
// comment of each hook says which call that is. If a hook may run after its
// call has returned, it gets a context that has the same values and never ends.
// If the hook reports on no call, the context is context.Background. With
// [WithRetention] the client contends on behalf of several calls, so Queued,
// Waiting and Retrying get context.Background.
//
// Programs can count calls of hooks. Each call of Lock, RLock, TryLock and
// TryRLock that is no re-entry causes one Granted or one Failed, or neither if
// another hook panics before. Each Granted is followed by exactly one Released or
// one Lost, and never by both. It has returned or panicked by then. Each Connected
// without an error is followed by one SessionEnded.
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
	// that did not grant the lock, with the context of Lock or RLock.
	Waiting func(context.Context, WaitingInfo)
	// Granted is called when the lock was granted, just before Lock or RLock
	// returns, with the context of that call. It is not called for a re-entry.
	Granted func(context.Context, GrantedInfo)
	// Failed is called when Lock, RLock, TryLock or TryRLock is about to return
	// an error, with the context of that call. It is called for a re-entry,
	// too.
	Failed func(context.Context, FailedInfo)
	// Retrying is called when a call of Lock or RLock tries again after an error
	// that may pass, or makes another node because its own is gone. It is called
	// before the pause, with the context of that call.
	Retrying func(context.Context, RetryingInfo)
	// Downgraded is called when the store was told that an exclusive lock has
	// become shared, or could not be told. The context is that of Downgrade. If
	// Unlock or a goroutine in the background tells the store, the context is
	// context.Background. The hook is not called if the driver has no Replacer.
	Downgraded func(context.Context, DowngradedInfo)
	// Released is called when a lock was given back by Unlock. After re-entry
	// it is called for the last Unlock only. The node is removed by then, or it
	// could not be removed; with retention it may stay for other goroutines.
	// The hook is not called if Unlock finds that the lock was lost. It gets
	// the values of the context with which the lock was taken, because Unlock
	// takes no context.
	Released func(context.Context, ReleasedInfo)
	// Lost is called when a lock was lost. A lock is also lost to Client.Close:
	// then the error matches ErrClosed. The hook gets the values of the context
	// with which the lock was taken.
	Lost func(context.Context, LostInfo)
	// Reaped is called when the client has finished, in the background, a
	// removal or a downgrade that the store had not confirmed at once. It is
	// also called when the client has given that up, because the session has
	// ended or the store refuses it. The context is context.Background.
	Reaped func(context.Context, ReapedInfo)
}

// and returns a Trace whose hooks call those of t and then those of u.
func (t *Trace) and(u *Trace) *Trace {
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
		defer second(ctx, i) // also if first panics
		first(ctx, i)
	}
}

// ConnectedInfo is the argument of Trace.Connected.
type ConnectedInfo struct {
	Took    time.Duration
	Session driver.SessionInfo // the new session; zero after an error
	Err     error              // nil if the client has a session
}

// SessionEndedInfo is the argument of Trace.SessionEnded.
type SessionEndedInfo struct {
	Err error // why the session has ended; matches ErrClosed after Client.Close
}

// QueuedInfo is the argument of Trace.Queued.
type QueuedInfo struct {
	Lock  string
	Place driver.Place
}

// WaitingInfo is the argument of Trace.Waiting.
type WaitingInfo struct {
	Lock, Node  string
	Predecessor string // the node that Node waits for; any client may have chosen the name
	Position    int    // the position of Node in the queue, from 1
}

// String returns one line for people. It quotes names that would not print.
func (i WaitingInfo) String() string {
	return fmt.Sprintf("%s: %s waits behind %s, %s in the queue", printable(i.Lock), printable(i.Node), printable(i.Predecessor), ordinal(i.Position))
}

// GrantedInfo is the argument of Trace.Granted.
type GrantedInfo struct {
	Lock, Node string
	Mode       Mode
	Token      int64
	Waited     time.Duration // the time since Lock or RLock was called
}

// FailedInfo is the argument of Trace.Failed.
type FailedInfo struct {
	Lock   string
	Node   string // the last node that the call had in the queue; empty if it had none
	Mode   Mode
	Try    bool          // whether the call was TryLock or TryRLock
	Waited time.Duration // the time since the call began
	Err    error         // the error that the call returns
}

// RetryingInfo is the argument of Trace.Retrying.
type RetryingInfo struct {
	Lock  string
	Err   error         // why the call tries again
	Delay time.Duration // the pause before the next try
}

// DowngradedInfo is the argument of Trace.Downgraded.
type DowngradedInfo struct {
	Lock, Node string // Node is the node's name as it is now
	Err        error  // nil, or why the node may still be exclusive in the store
}

// ReleasedInfo is the argument of Trace.Released.
type ReleasedInfo struct {
	Lock, Node string
	Held       time.Duration // the time since the lock was granted
	Err        error         // the error that Unlock returns
}

// LostInfo is the argument of Trace.Lost.
type LostInfo struct {
	Lock, Node string
	Held       time.Duration // the time since the lock was granted
	Err        error         // matches ErrLost
}

// ReapedInfo is the argument of Trace.Reaped.
type ReapedInfo struct {
	Lock, Node string
	Tries      int   // how often the request was sent
	Err        error // nil, or matches driver.ErrSessionEnded, or is the store's refusal
}
