// Package simulation runs the lock against a store in memory, in virtual time.
// A seed draws faults, and a judge compares the lock with the store.
//
// # A run
//
// A seed draws a few clients that share one or two locks. The actors of a
// client are goroutines. They acquire the locks in both modes and with every
// way of waiting, with and without timeouts and cancellations. They enter the
// locks again, also through contexts of other locks. They downgrade the locks,
// try them several times in a row, and unlock them.
//
// A client reaches the store through a connector of package faults. The
// connector contains a gate, where every request, every reply and every end of
// a watch waits. The gate lets one of these messages pass at a time, in an
// order that the seed draws. Before the next one it waits until every goroutine
// has gone as far as it can. So the seed decides the order of events, and not
// the scheduler. No two timers fire at the same instant.
//
// Between two steps the run injects faults:
//
//   - It loses requests and replies, sends requests twice, and keeps replies
//     for longer than any call waits.
//   - It ends watches early, or without Released, and leaves the list and the
//     watch out of what Create returns.
//   - It ends sessions, from either side, and cuts them off, in both directions
//     or one, with their heartbeats or without.
//   - It closes clients while they are used.
//   - It removes nodes and whole queues, as an operator does.
//   - It pauses processes, perhaps for longer than their lease. After a pause
//     the time has passed for the store and for the clocks of the process, but
//     no timer of the process has fired. The messages of the process move only
//     after the other processes have gone on for a while.
//
// In some runs the sequences of the queues start over after a few nodes, and in
// some the driver has no optional interfaces.
//
// # The judge
//
// After every step the judge reads the store with a session of its own. It
// fails the run in these cases:
//
//   - Two actors hold a lock that they may not hold together, and neither has
//     learned of a loss: by Lost, or, after a pause, by the first Err.
//   - A lock is granted without a node in the store, or although another node
//     blocks it; or by an answer that the store gave after it had removed the
//     node; or in a session or a context that had ended.
//   - The tokens of exclusive locks do not rise, or a reader has a lower token
//     than an earlier writer.
//   - A holder or a waiter whose node was removed does not notice it within 10
//     s in which nothing kept its client from the store.
//   - A call returns long after its timeout or cancellation, times out too
//     early, or fails without a reason. Unlock takes longer than it may, or
//     says that a node is gone which is there.
//   - If the actors of a client share their nodes: a node that readers hold
//     blocks a reader of the same client, or the store shows it as exclusive
//     while another client waits; or the actors pass the lock on among
//     themselves more often than Retention.Turns allows, although they know
//     that another client waits.
//   - A lost lock can be entered again, or a re-entry has another token.
//   - A waiter without a time limit does not get the lock. The judge sees that
//     because the run does not end within a number of steps.
//   - A node, a watch, a session or a goroutine is left when all clients are
//     closed, or a request reaches the store in the day after that.
//
// # Repeating a run
//
// A seed that fails prints itself, its journal, and the command that runs it
// again. An even seed then takes the same steps, because each client has one
// actor. About one even seed in two hundred does not, because two goroutines
// of a client wake at the same instant. In odd seeds two actors share a client
// and may run at the same time, in an order that the seed does not decide. Run
// such a seed a few times.
//
//	go test .                        20,000 seeds
//	go test . -seeds=500000          any number
//	go test . -seeds=1 -seed=44      one seed again
//	go test . -v                     how often everything happened
//
// # What it sees
//
// The directory faults holds faults of the lock. Each is a patch that names the
// first seeds that see it. If the simulation no longer sees one of them, it has
// become weaker; see the comment of package faults.
//
//	make faults                                          check that each is seen
//	make fault-seeds                                     find the seeds again
package simulation
