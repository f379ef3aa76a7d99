// Package simulation runs the lock against a store in memory, in virtual time, under faults
// that a seed draws, and has the store judge what comes out.
//
// # A run
//
// A seed draws a handful of clients that share one or two locks. Their actors take the locks in
// every mode and way of waiting, with timeouts, cancellations and without, enter them again, also
// through contexts of other locks, downgrade them, try them in storms, and give them back.
//
// Between a client and the store stands a connector of package faults, and in
// it a gate, where every request, every reply and all news of a watch stop. The
// gate lets one of them pass at a time, in an order that the seed draws. It
// waits until every goroutine has gone as far as it can before it lets the next
// one pass. So the store is the arbiter, and not the scheduler. No two timers
// run out at one instant.
//
// Between two steps the run plays faults. It loses requests and replies, sends
// requests twice, keeps replies for longer than any call waits, ends watches
// early, or in place of Released, and leaves the list and the watch out of what
// Create returns. It ends sessions from either side, cuts them off, both ways
// or one way, with their heartbeats or without, closes clients while they are
// used, and removes nodes and whole queues as an operator does. It pauses
// processes, perhaps past their lease: then the time has passed for the store
// and for the clocks of the process, no timer of it has run, and nothing that
// it sends or receives moves before the others have gone on for a while. In
// some runs the sequences of the queues roll over after a few nodes, and in
// some the driver has no optional interfaces.
//
// # The judge
//
// After every step the judge looks at the store with a session of its own, and fails the run where
//
//   - two hold a lock that may not hold it together, and neither is told: by Lost, or, after a pause,
//     by the first Err;
//   - a lock is granted to somebody who has no node in the store, or has another one in the way
//     before it; or on an answer that the store gave after it had removed the node; or in a session or
//     a context that had ended;
//   - the tokens of exclusive locks do not rise, or a reader has a lower one than a writer before;
//   - somebody whose node was removed, holding or waiting, does not notice it within 10 s in which
//     nothing kept him from the store;
//   - a call returns long after its timeout or cancellation, times out too early, or fails without a
//     reason; Unlock takes longer than it may, or says that a node is gone which is there;
//   - where the actors of a client share places: a place that readers hold
//     keeps a reader of the same client out, or stands as a writer's while
//     another client waits; or its actors take more turns in a row than
//     Retention.Turns, although they know that one waits;
//   - a lost lock can be entered again, or a re-entry has another token;
//   - somebody who waits without a limit does not get the lock: the run does not end then;
//   - a node, a watch, a session, or a goroutine is left when all clients are closed, or anything
//     reaches the store in the day after that.
//
// # Repeating it
//
// A seed that fails prints itself, its journal, and the command that runs it again. An even seed
// then takes the same steps, because one actor is all of a client there; about one in two thousand
// does not, where two goroutines of a client wake at one instant. In odd seeds two actors share a
// client, and may run at the same time, in an order that is not the seed's: run such a seed a few
// times.
//
//	go test ./internal/longtest/simulation                        20,000 seeds
//	go test ./internal/longtest/simulation -seeds=500000          any number
//	go test ./internal/longtest/simulation -seeds=1 -seed=44      one again
//	go test ./internal/longtest/simulation -v                     how often everything happened
//
// # What it sees
//
// The directory faults holds faults of the lock, each as a patch with the first seeds
// that see it. A simulation that no longer sees one of them has become blind; see the
// comment of package faults.
//
//	make faults                                          put each in, and see it
//	make fault-seeds                                     find the seeds anew
package simulation
