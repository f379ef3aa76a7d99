// Package faults injects faults between a driver and its caller, for tests of
// drivers and of applications that use locks.
//
// [New] returns a connector that wraps the connector of a driver. Requests and
// replies are delayed or lost, Deletes are sent twice, watches end early or are
// late, Create leaves out the nodes ahead or the watch, as a driver may,
// Connects fail, and sessions end.
//
//	store := faults.New(memdriver.New(), faults.Rates{Seed: 7, LoseReplies: 0.01}.Plan)
//	client := dlock.NewClient(store)
//
// [Rates] draws the faults at random. Any other [Plan] decides for each
// request.
//
// # Guarantees
//
// If a driver keeps the rules of package driver, then so do the connector's
// sessions, whatever the plan:
//
//   - A Create whose reply is lost, or whose ctx has ended, leaves no node. The
//     node is removed, even if the request arrives later (rule 4).
//   - A watch passes on the events of the driver's watch in order, and its end
//     comes, early or late. Released may come late, or the watch may end in its
//     place (rules 6 and 13).
//   - If a plan ends a session, Done is closed before the nodes go (rules 8 and
//     9).
//   - Close waits for everything that the session has started (rule 11).
//
// The package can be used in a bubble of testing/synctest. All methods are safe
// for concurrent use.
//
// # Limits
//
// The faults are injected outside the driver, so they do not affect its
// heartbeats: a session lives on even if none of its requests arrives. To cut a
// session off, or to pause its process, use functions of the store, such as
// those of memdriver.Faults. Nor do they show how a driver recovers from a lost
// reply: test that with dlocktest.Config.LoseReply.
//
// If a driver has an optional method that always returns an error that matches
// errors.ErrUnsupported, and a plan loses a request of that method, the method
// returns an error that matches driver.ErrUnavailable instead.
package faults
