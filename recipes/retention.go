package recipes

import "time"

// Retention limits how long a client keeps a node for reuse; see
// [WithRetention]. Zero or negative fields mean the default.
type Retention struct {
	// Idle is how long the client keeps an unused node after the last Unlock.
	// The default is 100 ms.
	Idle time.Duration

	// Turns limits how many turns in a row the client takes once it knows that
	// another client waits. A turn lasts while one goroutine holds the lock
	// exclusively, or while goroutines hold it shared without a gap. The
	// current turn counts, so with 1 the other client is next. The default is
	// 64.
	Turns int
}

const (
	defaultIdle  = 100 * time.Millisecond
	defaultTurns = 64
)

// WithRetention lets the goroutines of one client share one node in the queue
// of a lock. These goroutines are called a cohort. The client keeps the node
// for a short time after Unlock. As long as no other client waits for the lock,
// the next goroutine of the cohort gets the lock without a request to the
// store. This is for locks that one process takes again and again, perhaps from
// many goroutines.
//
// Other clients get the lock, too. While the client has the node, it watches
// the queue for new contenders, without polling. When it learns that another
// client waits,
//
//   - it removes a node that no goroutine holds, at once;
//   - it removes a node that is held exclusively after Retention.Turns turns at
//     most;
//   - it admits no further reader to a node that only readers hold. It gives the
//     node the name of a reader's node, so that readers of other clients get the
//     lock, and removes it after the last Unlock.
//
// Goroutines of the cohort that still wait then join the queue again, at its
// end. If a writer that waits in the queue gives up, and a reader of the cohort is
// next, the node becomes a reader's and keeps its position. A writer of the cohort
// joins the queue only when no reader of the cohort is before it. The client lists
// the queue once when the lock was granted to its node. Until the store has
// answered, any number of turns may pass, but for no longer than Retention.Idle.
//
// Within the cohort the lock is granted in the order of arrival. Readers of the
// cohort hold the node together. After [Lock.Downgrade] the waiting readers of
// the cohort get the lock, up to its first waiting writer. A TryLock of another
// client may fail because of a node that no goroutine holds, for no longer than
// Retention.Idle after the last Unlock. A node that was made for a reader is of no
// use to a writer of the cohort. If no goroutine holds it, the client removes it at
// once, and makes another.
//
// These things differ from a lock without retention:
//
//   - Turns on one node have the same token. So the resource cannot tell an
//     earlier holder of the cohort from a later one. The lock can: the Lock of a
//     goroutine that has unlocked is not held any more.
//   - Unlock returns before the node is removed, and sends no request. If an
//     operator has removed the node, the watch of the node reports that, within a
//     second as a rule, and Unlock does not.
//   - Hooks of a [Trace] that report on the queue run on a goroutine of the
//     client. Released is called at the end of each turn, even if the node stays.
//   - The goroutines of a cohort wait on one node. If an error of the store ends
//     the wait of one of them (see [WithBackOff]), it ends the wait of all.
//
// Loss, re-entry, cancellation, timeouts and Close are as without retention.
// After a downgrade the client does not keep the node: it removes the node
// after the last Unlock. RWMutexes of one client and one name share the node if
// both have the option. Each of them uses its own timeout. The other options
// are those of the call that came first. [WithoutRetention] exempts one lock
// from an option of the client.
func WithRetention(r Retention) Option {
	if r.Idle <= 0 {
		r.Idle = defaultIdle
	}
	if r.Turns <= 0 {
		r.Turns = defaultTurns
	}
	return func(o *options) { o.retention = &r }
}

// WithoutRetention exempts one lock from the client's [WithRetention]. Each
// call of Lock then has its own node. If the same client retains another node
// of the lock, the call waits for that node like any other contender.
func WithoutRetention() Option {
	return func(o *options) { o.retention = nil }
}
