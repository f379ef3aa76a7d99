// Package promdlock counts what dlock clients do, as Prometheus metrics.
//
//	trace, err := promdlock.New(prometheus.DefaultRegisterer)
//	if err != nil {
//		return err
//	}
//	client, err := dlock.Open("redis", dsn, dlock.WithTrace(trace))
//	http.Handle("/metrics", promhttp.Handler())
//
// The package's directory has alarms, rules.yml, and a Grafana dashboard,
// dashboard.json.
//
// # Metrics
//
//	name                       labels         what
//	dlock_wait_seconds         mode, outcome  histogram, from the call of Lock or the like
//	                                          to its return
//	dlock_hold_seconds         mode           histogram, from the grant to the release or loss
//	dlock_waiting              mode           calls that have not returned
//	dlock_held                 mode           locks that are held
//	dlock_timeouts_total       mode           calls whose time limit has passed
//	dlock_losses_total         mode, reason   locks lost while they were held
//	dlock_unlock_errors_total  mode           releases whose node stayed in the store
//	dlock_retries_total                       pauses after an error of the store, and nodes
//	                                          created again
//	dlock_connects_total       outcome        attempts to connect: ok, error
//	dlock_session_ends_total   reason         closed, by Client.Close; lost, otherwise
//	dlock_lease_left_ratio                    histogram, what was left of the lease when a
//	                                          heartbeat renewed it, as a share of the term
//
// The first eight have the label recipe, too: see [recipes.Trace]. A majority
// counts once with recipe="majority", and each of its locks with recipe="member",
// which alarms leave out.
//
// The mode is exclusive or shared, after a downgrade that of the grant. The
// outcome of a wait is granted or a value of [recipes.FailedInfo.Outcome], and the
// reason of a loss a value of [recipes.LostInfo.Reason]. A re-entry counts only if
// it fails.
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
