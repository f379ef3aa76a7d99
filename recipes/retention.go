package recipes

import "time"

// Retention says how long a process may keep a lock's place in the queue for itself; see
// [WithRetention]. A field of zero or less means its default.
type Retention struct {
	// Idle is how long the place is kept when nobody in the process holds the lock (100 ms).
	Idle time.Duration

	// Turns is how many turns in a row the process may take once its client
	// knows that another process waits, the present turn included (64). With 1
	// the lock goes to the other process next. A turn is a time in which one
	// goroutine holds the lock exclusively, or one in which goroutines hold it
	// shared without a gap.
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
// Other processes get the lock in their turn. From the moment the process has
// the place, its client asks the store to tell when another contender joins the
// queue: there is no polling. When the client learns that one waits,
//
//   - a place that is idle is given up at once;
//   - a place that is held exclusively is given up after Retention.Turns turns at most;
//   - a place that only readers hold takes no further reader. Its node becomes
//     that of a reader, so that readers of other processes enter, and goes with
//     the last Unlock. Where the driver has no Replacer, they wait for that
//     Unlock.
//
// Callers that still wait in the process join the queue again at its end. The
// client looks at the queue once when it has won the place. Until the store has
// answered, and for no longer than Retention.Idle, any number of turns may
// pass.
//
// Within the process the order is that of arrival. Readers of the process hold
// one place together. After [Lock.Downgrade] its waiting readers enter, up to
// the first waiting writer. A TryLock elsewhere may fail because of an idle
// place, for no longer than Retention.Idle after the last Unlock.
//
// What is different from a lock without retention:
//
//   - Turns on one place have the same token: the resource cannot tell an earlier holder of the
//     same process from a later one. The lock can: a goroutine that has unlocked is out.
//   - Unlock returns before the node is gone, and asks nothing of the store. That the node had
//     been removed by somebody is noticed by the watch of it, within a second as a rule, not by
//     Unlock.
//   - Hooks of a [Trace] that see what happens in the queue run on a goroutine of the client.
//     Released is called at the end of each turn, although the node may stay.
//   - A goroutine that waits does so under the store's errors together with the others: an error
//     that ends one's waiting (see [WithBackOff]) ends that of all who wait by then.
//
// Loss, re-entry, cancellation, timeouts and Close are as without it. A lock
// that was downgraded is given back by its last Unlock. RWMutexes of one client
// and one name share the place if both have the option; each uses its own
// timeout, and the rest of the options is that of the call that came first.
// [WithoutRetention] exempts one lock from a client's option.
func WithRetention(r Retention) Option {
	if r.Idle <= 0 {
		r.Idle = defaultIdle
	}
	if r.Turns <= 0 {
		r.Turns = defaultTurns
	}
	return func(o *options) { o.retention = &r }
}

// WithoutRetention undoes [WithRetention], for one lock of a client that has it
// as a default. Each call of Lock then has a node of its own. It waits for a
// place that other RWMutexes of that client and name retain, as any other
// contender does.
func WithoutRetention() Option {
	return func(o *options) { o.retention = nil }
}
