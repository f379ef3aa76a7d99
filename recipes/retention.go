package recipes

import "time"

// Retention says how long a process may keep a lock's place in the queue for itself; see
// [WithRetention]. A field of zero or less means its default.
type Retention struct {
	// Idle is how long the place is kept when nobody in the process holds the lock (100 ms).
	Idle time.Duration

	// Turns is how often the lock may go from one to the next within the process while somebody
	// else waits for it (64). With 1 it never does.
	Turns int
}

const (
	defaultIdle  = 100 * time.Millisecond
	defaultTurns = 64
)

// WithRetention has the goroutines of one client share one place in the queue of a lock. The
// place is kept after Unlock, for a short time, and goes to the next goroutine of the process
// without a request to the store, as long as nobody else waits for the lock. It is for locks
// that are taken again and again by one process, or by many of its goroutines.
//
// Others get the lock in their turn. When somebody else joins the queue (of which the store
// tells: there is no polling), the place is given up at once if it is idle, else after
// Retention.Turns turns at most, and who still waits in the process joins the queue again at its
// end. Within the process the order is that of arrival. Readers of the process hold one place
// together. A TryLock elsewhere may fail because of an idle place, for no longer than
// Retention.Idle after the last Unlock.
//
// What is different from a lock without retention:
//
//   - Turns on one place have the same token: the resource cannot tell an earlier holder of the
//     same process from a later one. The lock can: a goroutine that has unlocked is out.
//   - Unlock returns before the node is gone, and asks nothing of the store. That the node had
//     been removed by somebody is noticed by the watch of it, within a second as a rule, not by
//     Unlock.
//   - Hooks of a [Trace] that see what happens in the queue run on a goroutine of the client.
//   - A goroutine that waits does so under the store's errors together with the others: an error
//     that ends one's waiting (see [WithBackOff]) ends that of all who wait by then.
//
// Loss, re-entry, cancellation, timeouts and Close are as without it. A lock that was
// downgraded is given back by its last Unlock. RWMutexes of one client and one name share
// the place if both have the option; each uses its own timeout, and the rest of the
// options is that of who came first.
func WithRetention(r Retention) Option {
	if r.Idle <= 0 {
		r.Idle = defaultIdle
	}
	if r.Turns <= 0 {
		r.Turns = defaultTurns
	}
	return func(o *options) { o.retention = &r }
}
