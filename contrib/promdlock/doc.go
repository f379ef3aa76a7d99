// Package promdlock counts what dlock clients do, as Prometheus metrics.
//
//	trace, err := promdlock.New(prometheus.DefaultRegisterer)
//	if err != nil {
//		return err
//	}
//	client, err := dlock.Open("redis", dsn, dlock.WithTrace(trace))
//	http.Handle("/metrics", promhttp.Handler())
//
// # Metrics
//
//	name                          type       labels          what
//	dlock_wait_seconds            histogram  mode, outcome   from the call of Lock, RLock, TryLock
//	                                                         or the like to its return
//	dlock_hold_seconds            histogram  mode            from the grant to the release or loss
//	dlock_waiting                 gauge      mode            calls that have not returned
//	dlock_held                    gauge      mode            locks that are held
//	dlock_timeouts_total          counter    mode            calls whose time limit has passed
//	dlock_losses_total            counter    mode            locks lost while they were held
//	dlock_retries_total           counter                    pauses after an error of the store, and
//	                                                         nodes created again
//	dlock_unlock_errors_total     counter    mode            releases whose node stayed in the store
//	dlock_connects_total          counter    outcome         attempts to connect: ok, error
//	dlock_session_ends_total      counter    reason          ends of sessions: closed, by
//	                                                         Client.Close; lost, for any other reason
//	dlock_lease_left_ratio        histogram                  what was left of the lease when a
//	                                                         heartbeat renewed it, as a share of
//	                                                         the term
//
// The first eight also have the label recipe, which says what was taken: lock
// for a read-write lock, semaphore or election.
//
// The mode is exclusive or shared. A lock that was downgraded counts with the
// mode in which it was granted. The outcome of a wait is one of:
//
//	granted   the call has got the lock
//	locked    TryLock or TryRLock found the lock taken
//	timeout   WithTimeout or the deadline of the context has passed
//	canceled  the context was cancelled
//	error     anything else, such as an unreachable store
//
// A re-entry is counted only if it fails.
//
// A lock is lost if the store is out of reach for longer than the lease. If a
// heartbeat finds less than a quarter of it left, the session timeout is too
// short for the store or the machine:
//
//	increase(dlock_lease_left_ratio_bucket{le="0.25"}[1h]) > 0
//
// # Names of locks
//
// No metric has the name of a lock, because each name would be a time series of
// its own. [WithLockLabel] adds a label that a function derives from the name.
//
// A trace may be passed to several clients, whose figures are then added. So
// are those of another New with the same registerer and options. To tell
// clients apart, wrap the registerer:
//
//	promdlock.New(prometheus.WrapRegistererWith(prometheus.Labels{"client": "billing"}, registerer))
package promdlock
