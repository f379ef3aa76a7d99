package recipes

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Trace is a set of hooks, like that of net/http/httptrace. Any of them may be
// nil.
//
// Hooks run on the goroutine that does the work, possibly concurrently, and
// delay it. Keep them short, and do not call the lock or its client from them.
//
// If a hook panics, the same hook of other traces is still called, and the
// panic ends the call that has run the hook. A call of Lock, RLock, TryLock or
// TryRLock then holds nothing, and its node is removed. Connected, Heartbeat,
// SessionEnded, Reaped and Downgraded may run on goroutines of the client,
// where a panic ends the program. Lost always runs on such a goroutine, perhaps
// after SessionEnded or after the return of the Unlock that found the loss.
// [Client.Close] waits for it.
//
// A hook gets the context of the call that its comment names, or one derived
// from it, so that a tracing span finds its parent. If a hook may run after its
// call has returned, its context has the same values but never ends. A hook
// that reports on no call gets context.Background.
//
// Hooks are suitable for counting. Each call of Lock, RLock, TryLock and
// TryRLock causes one Started and then one Granted or one Failed, unless it is
// a successful re-entry, which runs none of them. If another hook panics, the
// call may end without Granted and Failed. After each Granted has returned or
// panicked, exactly one Released or one Lost follows. Each Connected without an
// error is followed by one SessionEnded.
//
// In every hook about a lock, the field Recipe says what the lock is used for:
// "lock" for an [RWMutex], "semaphore" for a [Semaphore], "election" for an
// [Election], "majority" for the Mutex of package majority as a whole, and
// "member" for its lock in one of the stores. To count a majority only once,
// leave out the members.
type Trace struct {
	// Connected is called after every attempt to connect, with the context of
	// the call that started the attempt. Other calls may share the attempt.
	Connected func(context.Context, ConnectedInfo)
	// Heartbeat is called after a reply from the store has renewed the
	// session's lease. Replies in quick succession may be reported as one, with
	// the smallest HeartbeatInfo.Left among them. If Left comes close to zero,
	// locks will soon be lost: set a longer session timeout. The hook runs on
	// its own goroutine, with context.Background, and only if the driver
	// reports heartbeats.
	Heartbeat func(context.Context, HeartbeatInfo)
	// SessionEnded is called when a session has ended, with context.Background.
	SessionEnded func(context.Context, SessionEndedInfo)
	// Started is called when Lock, RLock, TryLock or TryRLock begins, with the
	// context of that call. It is not called for a successful re-entry.
	Started func(context.Context, StartedInfo)
	// Queued is called with the context of a call that has joined the queue.
	Queued func(context.Context, QueuedInfo)
	// Waiting is called before a contender waits, and again after each wake-up
	// that did not grant the lock, with the context of Lock or RLock.
	Waiting func(context.Context, WaitingInfo)
	// Granted is called just before Lock or RLock returns a Lock, with the
	// context of that call. It is not called for a re-entry.
	Granted func(context.Context, GrantedInfo)
	// Failed is called before Lock, RLock, TryLock or TryRLock returns an
	// error, also for a re-entry, with the context of that call.
	Failed func(context.Context, FailedInfo)
	// Retrying is called before Lock or RLock pauses after a temporary error,
	// or creates another node because its own is gone. It gets the context of
	// that call.
	Retrying func(context.Context, RetryingInfo)
	// Downgraded is called after an attempt to tell the store that an exclusive
	// lock has become shared. The context is that of Downgrade, or
	// context.Background if Unlock or a background goroutine makes the attempt.
	Downgraded func(context.Context, DowngradedInfo)
	// Released is called when a lock is released by the last Unlock, unless
	// Unlock finds it lost. The attempt to remove the node has ended by then.
	// Since Unlock takes no context, the hook gets the values of the context
	// with which the lock was taken.
	Released func(context.Context, ReleasedInfo)
	// Lost is called when a lock is lost, including by Client.Close, in which
	// case the error matches ErrClosed. It gets the values of the context with
	// which the lock was taken.
	Lost func(context.Context, LostInfo)
	// Reaped is called when background retries of an unconfirmed removal or
	// downgrade end: with success, with the store's refusal, or with the session.
	// It gets context.Background.
	Reaped func(context.Context, ReapedInfo)
}

func (t *Trace) and(u *Trace) *Trace {
	return &Trace{
		Connected:    both(t.Connected, u.Connected),
		Heartbeat:    both(t.Heartbeat, u.Heartbeat),
		SessionEnded: both(t.SessionEnded, u.SessionEnded),
		Started:      both(t.Started, u.Started),
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
	Session driver.SessionInfo // zero after an error
	Err     error              // nil if connected

	// Before is empty unless the store may have lost data since the client's
	// previous session, as in a fail-over. Then it is the Generation of that
	// session (see Session), whose locks are all lost.
	Before string
}

// HeartbeatInfo is the argument of Trace.Heartbeat.
type HeartbeatInfo struct {
	SessionID string        // the ID of driver.SessionInfo
	Left      time.Duration // left of the lease when the reply arrived
	Term      time.Duration // how long the lease runs without a renewal
}

// SessionEndedInfo is the argument of Trace.SessionEnded.
type SessionEndedInfo struct {
	Err error // reason for the end; matches ErrClosed after Client.Close
}

// StartedInfo is the argument of Trace.Started.
type StartedInfo struct {
	Recipe string
	Lock   string
	Mode   Mode
	Try    bool
}

// QueuedInfo is the argument of Trace.Queued.
type QueuedInfo struct {
	Recipe string
	Lock   string
	Place  driver.Place
}

// WaitingInfo is the argument of Trace.Waiting.
type WaitingInfo struct {
	Recipe      string
	Lock, Node  string
	Predecessor string // blocks Node; the name may be forged
	Position    int    // position in the queue, from 1
}

// String describes the wait on one line. Unprintable names are quoted.
func (i WaitingInfo) String() string {
	return fmt.Sprintf("%s: %s waits behind %s, %s in the queue", printable(i.Lock), printable(i.Node), printable(i.Predecessor), ordinal(i.Position))
}

// GrantedInfo is the argument of Trace.Granted.
type GrantedInfo struct {
	Recipe     string
	Lock, Node string
	Mode       Mode
	Try        bool // whether the call was TryLock or TryRLock
	Token      int64
	Waited     time.Duration
}

// FailedInfo is the argument of Trace.Failed.
type FailedInfo struct {
	Recipe string
	Lock   string
	Node   string // the call's last node; empty if none
	Mode   Mode
	Try    bool
	Waited time.Duration
	Err    error
}

// Outcome classifies the error for metrics:
//
//	locked      TryLock or TryRLock found the lock taken
//	queue_full  the queue was longer than WithMaxQueue allows
//	closed      the client was closed or shutting down
//	timeout     WithTimeout or the deadline of the context has passed
//	canceled    the context was cancelled
//	error       anything else, such as an unreachable store
func (i FailedInfo) Outcome() string {
	switch {
	case errors.Is(i.Err, ErrLocked):
		return "locked"
	case errors.Is(i.Err, ErrQueueFull):
		return "queue_full"
	case errors.Is(i.Err, ErrClosed):
		return "closed"
	case errors.Is(i.Err, ErrTimeout):
		return "timeout"
	case errors.Is(i.Err, context.Canceled):
		return "canceled"
	}
	return "error"
}

// RetryingInfo is the argument of Trace.Retrying.
type RetryingInfo struct {
	Recipe string
	Lock   string
	Err    error // the reason for the retry
	Delay  time.Duration
}

// DowngradedInfo is the argument of Trace.Downgraded.
type DowngradedInfo struct {
	Recipe     string
	Lock, Node string // Node is the current name
	Err        error  // if not nil, the node may stay exclusive
}

// ReleasedInfo is the argument of Trace.Released.
type ReleasedInfo struct {
	Recipe     string
	Lock, Node string
	Mode       Mode          // at the end
	Granted    Mode          // the mode in GrantedInfo, even after a downgrade
	Held       time.Duration // since the grant
	Err        error
}

// LostInfo is the argument of Trace.Lost.
type LostInfo struct {
	Recipe     string
	Lock, Node string
	Mode       Mode          // at the loss
	Granted    Mode          // the mode in GrantedInfo, even after a downgrade
	Held       time.Duration // since the grant
	Err        error         // matches ErrLost
}

// Reason classifies the error for metrics:
//
//	max_hold       the lock was held for the time of WithMaxHold
//	closed         the client was closed
//	lost_data      the store may have lost data, as after a fail-over
//	session_ended  the store was out of reach for too long, or has ended the session
//	removed        an operator or another client has removed the node
func (i LostInfo) Reason() string {
	switch {
	case errors.Is(i.Err, ErrMaxHold):
		return "max_hold"
	case errors.Is(i.Err, ErrClosed):
		return "closed"
	case errors.Is(i.Err, driver.ErrLostData):
		return "lost_data"
	case errors.Is(i.Err, driver.ErrSessionEnded):
		return "session_ended"
	}
	return "removed"
}

// WithRecipe sets the field Recipe in hooks. Packages that build something else
// from locks use it, so that metrics can tell these locks apart.
func WithRecipe(name string) Option { return func(o *options) { o.recipe = name } }

// Trace returns the client's hooks, for packages that build something from
// locks and report on it as a whole. It is never nil, but its hooks may be.
func (c *Client) Trace() *Trace { return c.options.trace }

// ReapedInfo says how the removal or downgrade of a node ended in the
// background: see Trace.Reaped. Err is nil on success. Otherwise it matches
// driver.ErrSessionEnded, or is the store's refusal, such as ErrGone.
type ReapedInfo struct {
	Recipe     string
	Lock, Node string
	Tries      int
	Err        error
}
