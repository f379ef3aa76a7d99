// Package faults plays faults between a driver and its caller, for tests of
// drivers and of what is built on locks.
//
// [New] returns a connector that stands before another one. It delays requests,
// replies and the news of watches, loses requests before the store has seen
// them and replies after the store has carried them out, sends a Delete twice,
// ends watches early, leaves out what Create may leave out, refuses to connect,
// and ends sessions:
//
//	store := faults.New(memdriver.New(), faults.Rates{Seed: 7, LoseReplies: 0.01}.Plan)
//	client := dlock.NewClient(store)
//
// [Rates] draws the faults by chance. Any other [Plan] decides itself what
// becomes of each request.
//
// # Guarantees
//
// A driver that keeps the contract keeps it behind this package, too, whatever
// the plan says:
//
//   - A Create whose reply is lost, or whose caller has given up, leaves no
//     node. It is removed, also if the request arrives later (rule 4).
//   - A watch tells what happened in the order in which the driver tells it, and
//     nothing after its end. An end may come early or late, but it comes.
//     Released may come late, or an end may come in its place (rules 6 and 13).
//   - A session that a plan ends has ended here before its nodes go: it is
//     closed (rules 8 and 9).
//   - Close waits for everything that the session has begun (rule 11).
//   - Replace, Read and Walk are unsupported where the driver does not support
//     them.
//
// The package waits on channels and timers only, so it works inside the bubbles
// of testing/synctest as it does outside. All methods, also those of sessions,
// are safe for use by many goroutines.
//
// # Limits
//
// The faults are played outside the driver. They do not stop its heartbeats: a
// session that gets no request through lives on. To cut a session off, or to
// pause its process, use the store's own means, such as those of memdriver. And
// they do not prove how a driver recovers from a reply that the network has
// lost, because the driver has got its reply. dlocktest.Config.LoseReply is for
// that.
//
// A session that has a method such as Replace and says in its answer that it is
// unsupported may seem unavailable first, if the request is lost.
package faults
