// Package simulation tests the lock against an in-memory store in virtual time.
// A seed determines faults and the order of events, and a judge compares the
// lock with the store.
//
// # A run
//
// A seed draws a few clients that share one or two locks. A client's actors are
// goroutines, which acquire the locks in both modes, with every way of waiting,
// with and without timeouts and cancellations. They re-enter, also through
// contexts of other locks, downgrade, try repeatedly, and unlock.
//
// A client reaches the store through a connector of package faults, which
// contains a gate. There every request, reply and end of a watch waits until
// the run lets it pass, one message at a time and in an order drawn from the
// seed. Before the next one all goroutines run until they block, so that the
// seed rather than the scheduler decides the order of events. No two timers
// fire at the same instant.
//
// Between two steps the run injects faults:
//
//   - It loses requests and replies, duplicates requests, and delays replies
//     for longer than any call waits.
//   - It ends watches early, or without Released, and leaves the list and the
//     watch out of the result of Create.
//   - It ends sessions, from either side, and cuts them off, in both directions
//     or one, with their heartbeats or without.
//   - It closes clients in use.
//   - It removes nodes and whole queues, as an operator would.
//   - It pauses processes, perhaps past their lease. When a process resumes,
//     time has passed for the store and for its own clocks, but none of its
//     timers has fired, and its messages move only after other processes have
//     taken some steps.
//
// In one of eight runs, and with -units in all, most calls are for units of a
// semaphore that has the name of a lock.
//
// In some runs the sequences of the queues start over after a few nodes, and in
// some the driver has no optional interfaces.
//
// # The judge
//
// After every step the judge reads the store in a session of its own. It fails
// the run in these cases:
//
//   - Two actors hold a lock that they may not hold together, and neither has
//     learned of a loss: by Lost, or, after a pause, by the first Err.
//   - More units of a semaphore are held than there are, or a contender waits
//     for 10 s for units that are free.
//   - A lock is granted without a node in the store, although another node
//     blocks it, by an answer from before the removal of the node, or in a
//     session or a context that had ended.
//   - The tokens of exclusive locks do not increase, or a reader has a lower
//     token than an earlier writer.
//   - A holder or a waiter whose node was removed does not notice it within 10
//     s in which nothing kept its client from the store.
//   - A call returns long after its timeout or cancellation, times out too
//     early, or fails without a reason. Unlock takes longer than it may, or
//     reports an existing node as gone.
//   - A lost lock can be re-entered, or a re-entry has another token.
//   - A call does not run Started and then Failed, or Granted and one Released
//     or Lost, each with the mode of the call and a context that has not ended.
//   - An error speaks of a cancellation that no caller has made.
//   - A waiter without a time limit never gets the lock, so that the run
//     exceeds its number of steps.
//   - A node, a watch, a session or a goroutine is left when all clients are
//     closed, or a request reaches the store in the day after that.
//
// # Repeating a run
//
// A seed that fails prints itself, its journal, and the command that runs it
// again. Even seeds repeat exactly, because each client has one actor, except
// for about one in two hundred in which two goroutines of a client wake at the
// same instant. In odd seeds two actors share a client and may run
// concurrently, in an order that the seed does not decide. Run such a seed a
// few times.
//
//	go test .                        20,000 seeds
//	go test . -seeds=500000          any number
//	go test . -units                 with semaphores in most runs
//	go test . -seeds=1 -seed=44      one seed again
//	go test . -v                     how often everything happened
//
// # What it sees
//
// Package plant holds faults to put into the lock, many of which name the first
// seeds that see them. If one of them is no longer seen, the simulation has
// become weaker.
package simulation
