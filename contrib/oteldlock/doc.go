// Package oteldlock reports what dlock clients do to OpenTelemetry, as metrics
// and spans.
//
//	trace, err := oteldlock.New()
//	if err != nil {
//		return err
//	}
//	client, err := dlock.Open("redis", dsn, dlock.WithTrace(trace))
//
// # Metrics
//
//	name                  instrument (unit)       attributes     what
//	dlock.wait.duration   histogram (s)           mode, outcome  from the call of Lock, RLock, TryLock
//	                                                             or the like to its return
//	dlock.hold.duration   histogram (s)           mode           from the grant to the release or loss
//	dlock.waiting         up-down counter {call}  mode           calls that have not returned
//	dlock.held            up-down counter {lock}  mode           locks that are held
//	dlock.timeouts        counter {call}          mode           calls whose time limit has passed
//	dlock.losses          counter {lock}          mode, reason   locks lost while they were held
//	dlock.retries         counter {retry}                        pauses after an error of the store,
//	                                                             and nodes created again
//	dlock.unlock.errors   counter {lock}          mode           releases whose node stayed in the
//	                                                             store
//	dlock.connects        counter {attempt}       outcome        attempts to connect: ok, error
//	dlock.session.ends    counter {session}       reason         ends of sessions: closed, by
//	                                                             Client.Close; lost, otherwise
//	dlock.lease.left      histogram (1)                          what was left of the lease when a
//	                                                             heartbeat renewed it, as a share of
//	                                                             the term
//
// The first eight also have the attribute recipe: see [recipes.Trace]. A majority
// counts once with the recipe majority, and each of its locks with the recipe
// member, which alarms leave out.
//
// The keys of the attributes are dlock.mode, dlock.recipe, dlock.outcome and
// dlock.reason. The mode is exclusive or shared, after a downgrade that of the
// grant. The outcome of a wait is granted or a value of
// [recipes.FailedInfo.Outcome], and the reason of a loss a value of
// [recipes.LostInfo.Reason]. A re-entry counts only if it fails.
//
// A lock is lost if the store is out of reach for longer than the lease. If
// dlock.lease.left falls below a quarter, the session timeout is too short for
// the store or the machine.
//
// # Spans
//
// If the context of a call has a span, there are two children of it: "dlock
// wait", from the call to its return, and "dlock hold", from the grant to the
// release or loss. They have the attributes above, and dlock.token. Outcomes
// timeout and error, a failed release and a loss have the status Error.
//
// # Names of locks
//
// No metric or span has the name of a lock or the text of an error, which
// contains the name. [WithLockLabel] adds an attribute that a function derives
// from the name.
//
// A trace may be passed to several clients, whose figures are then added.
package oteldlock
