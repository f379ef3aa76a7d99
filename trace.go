package dlock

import (
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes"
)

// WithTrace adds hooks that see what a lock does. If several traces have the
// same hook, all of them are called: first the hooks of the client, then those
// of the lock. A nil trace adds nothing.
func WithTrace(t *Trace) Option { return recipes.WithTrace(t) }

// Trace is a set of hooks for [WithTrace]. Any of them may be nil:
//
//	type Trace struct {
//		Connected    func(context.Context, ConnectedInfo)
//		SessionEnded func(context.Context, SessionEndedInfo)
//		Queued       func(context.Context, QueuedInfo)
//		Waiting      func(context.Context, WaitingInfo)
//		Granted      func(context.Context, GrantedInfo)
//		Failed       func(context.Context, FailedInfo)
//		Retrying     func(context.Context, RetryingInfo)
//		Downgraded   func(context.Context, DowngradedInfo)
//		Released     func(context.Context, ReleasedInfo)
//		Lost         func(context.Context, LostInfo)
//		Reaped       func(context.Context, ReapedInfo)
//	}
//
// The context of a hook is that of the call which the hook reports on, or a
// context that has the same values and never ends. If the hook reports on no
// call, the context is context.Background.
//
// A hook runs on the goroutine that does the work, possibly on several at once,
// and delays it: keep it short, and do not call the lock or its client. A panic
// in a hook ends the call, or the program if the hook runs on a goroutine of the
// client.
//
// Each call of Lock, RLock, TryLock and TryRLock that is no re-entry causes one
// Granted or one Failed. Each Granted is followed by one Released or one Lost.
// Each Connected without an error is followed by one SessionEnded.
//
// [recipes.Trace] says of each hook when it is called and with which context.
type Trace = recipes.Trace

// ConnectedInfo is the argument of Trace.Connected:
//
//	type ConnectedInfo struct {
//		Took    time.Duration // how long the attempt took
//		Session SessionInfo   // the new session; zero after an error
//		Err     error         // nil: the client has a session
//	}
type ConnectedInfo = recipes.ConnectedInfo

// SessionInfo describes a session with the store. Fields that the driver does
// not know are zero:
//
//	type SessionInfo struct {
//		ID      string        // the session, in the store's terms
//		Server  string        // the address of the server
//		Timeout time.Duration // how long the store keeps a silent session
//	}
type SessionInfo = driver.SessionInfo

// SessionEndedInfo is the argument of Trace.SessionEnded:
//
//	type SessionEndedInfo struct {
//		Err error // why it ended; matches ErrClosed after Client.Close
//	}
type SessionEndedInfo = recipes.SessionEndedInfo

// QueuedInfo is the argument of Trace.Queued:
//
//	type QueuedInfo struct {
//		Lock  string // the lock's name, here and in the other hooks
//		Place Place  // the new node
//	}
type QueuedInfo = recipes.QueuedInfo

// Place is a node in a queue, with its fencing token:
//
//	type Place struct {
//		Node        // Name string, Seq int64, and Epoch int64
//		Token int64
//	}
//
// Name ends in the sequence number Seq. Name and Epoch together name one node
// for ever.
type Place = driver.Place

// WaitingInfo is the argument of Trace.Waiting:
//
//	type WaitingInfo struct {
//		Lock        string
//		Node        string // the node of the contender, here and in the other hooks
//		Predecessor string // the node that it waits for; another client chose the name
//		Position    int    // in the queue, from 1
//	}
//
//	func (i WaitingInfo) String() string
type WaitingInfo = recipes.WaitingInfo

// GrantedInfo is the argument of Trace.Granted:
//
//	type GrantedInfo struct {
//		Lock   string
//		Node   string
//		Mode   Mode
//		Token  int64
//		Waited time.Duration // since the call began
//	}
type GrantedInfo = recipes.GrantedInfo

// FailedInfo is the argument of Trace.Failed:
//
//	type FailedInfo struct {
//		Lock   string
//		Node   string        // the last node of the call; empty if it had none
//		Mode   Mode
//		Try    bool          // the call was TryLock or TryRLock
//		Waited time.Duration // since the call began
//		Err    error         // what the call returns
//	}
type FailedInfo = recipes.FailedInfo

// RetryingInfo is the argument of Trace.Retrying:
//
//	type RetryingInfo struct {
//		Lock  string
//		Err   error         // why the operation is repeated
//		Delay time.Duration // the pause before the repetition
//	}
type RetryingInfo = recipes.RetryingInfo

// DowngradedInfo is the argument of Trace.Downgraded:
//
//	type DowngradedInfo struct {
//		Lock string
//		Node string // the node's name as it is now
//		Err  error  // nil, or why the node may still be exclusive in the store
//	}
type DowngradedInfo = recipes.DowngradedInfo

// ReleasedInfo is the argument of Trace.Released:
//
//	type ReleasedInfo struct {
//		Lock string
//		Node string
//		Held time.Duration // since the lock was granted
//		Err  error         // what Unlock returns
//	}
type ReleasedInfo = recipes.ReleasedInfo

// LostInfo is the argument of Trace.Lost:
//
//	type LostInfo struct {
//		Lock string
//		Node string
//		Held time.Duration // since the lock was granted
//		Err  error         // matches ErrLost
//	}
type LostInfo = recipes.LostInfo

// ReapedInfo is the argument of Trace.Reaped:
//
//	type ReapedInfo struct {
//		Lock  string
//		Node  string
//		Tries int   // how often the request was sent
//		Err   error // nil, or matches ErrSessionEnded, or is the store's refusal
//	}
type ReapedInfo = recipes.ReapedInfo
