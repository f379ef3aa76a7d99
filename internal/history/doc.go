// Package history makes histories of the lock: the calls of several clients and
// their results, under faults of the store, of the network and by operators. It
// has one actor, one recorder and one set of rules, in three worlds:
//
//   - In virtual time, on a store in memory. A seed determines the faults and the
//     order of events, and a judge compares the lock with the store after every
//     step.
//   - On any store, with the Config that the test of its driver passes to
//     dlocktest.Run.
//   - On ZooKeeper servers that fail: see internal/longtest/ensemble.
//
// The package checks the rules that need no search. It saves the histories for
// internal/longtest/histories, which checks that they are linearizable: there
// is an order of all operations that agrees with the times of the calls and
// returns, and in which a plain read-write lock of one process gives the same
// results. (See Herlihy and Wing, "Linearizability: A Correctness Condition for
// Concurrent Objects", 1990.) That package is in another module, so that the
// drivers, whose tests record histories, do not require its library.
//
// # How to run it
//
// The first command makes and judges the histories of all stores. The second one
// runs 500 seeds. The others run any number of seeds, and repeat the seed that a
// failing test has named:
//
//	make histories
//	go test .
//	go test . -seeds=500000
//	go test -run=TestNoSeed . -seeds=1 -seed=44
//
// The environment variable DLOCK_HISTORIES names a directory for the records,
// without which there is no search:
//
//	DLOCK_HISTORIES=/tmp/records go test -race ./internal/history
//	DLOCK_HISTORIES=/tmp/records go test -C internal/longtest ./histories
//
// With -v each test prints what happened in its histories.
//
// # How the test of a driver uses it
//
//	func TestHistoriesAreLinearizable(t *testing.T) {
//		history.Run(t, history.Store{
//			Of:     "mystore",
//			Config: config(t),
//			Outage: func(t *testing.T) (mend func()) {
//				server.Kill()
//				return func() { server.Restart() }
//			},
//		})
//	}
//
// TestRunMakesHistories does that for memdriver, in virtual time. The judge fails
// if it finds no record of one of the stores that it lists.
//
// # What the actors do
//
// They acquire locks in both modes with every way of waiting, try, also again
// and again, give up, and campaign in elections. Deadlines are sometimes so short
// that they pass while a request is in flight. Holders re-enter with the context
// of a lock (also while another goroutine uses it, or with the context of a
// nested lock), downgrade, and unlock. In some queues most calls acquire units
// of a semaphore, and the others take the read-write lock of the same name, which
// excludes it. A call within a hold of units only tries, because it is no
// re-entry. In virtual time actors also call Once.
//
// In a history of [Run], the hooks of the Config are played, an outage ends the
// service for all clients, and clients are closed. The faults prefer clients that
// hold a lock, and some wait for exactly the request that creates or deletes a
// node.
//
// # The gate
//
// In virtual time a client reaches the store through a connector of package
// faults, which contains a gate. There every request, reply and end of a watch
// waits until the run lets it pass, one message at a time and in an order drawn
// from the seed. Before the next one all goroutines run until they block, so
// that the seed rather than the scheduler decides the order of events. Between
// two steps the run injects faults:
//
//   - It loses, duplicates and delays messages, ends watches early, and leaves the
//     list and the watch out of the result of Create.
//   - It ends sessions, cuts them off, closes clients in use, and removes nodes
//     and whole queues, as an operator would.
//   - It pauses processes, perhaps past their lease. When a process resumes,
//     time has passed for the store and for its own clocks, but none of its
//     timers has fired, and its messages move only after other processes have
//     taken some steps.
//
// In some runs the sequences of the queues start over after a few nodes, and in
// some the driver has no optional interfaces.
//
// After every step a judge reads the store in a session of its own. It counts
// for itself, and fails the run in these cases:
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
//   - A call returns long after its timeout or cancellation, or times out too
//     early. Unlock takes longer than it may, or leaves the node.
//   - A waiter without a time limit never gets the lock, so that the run
//     exceeds its number of steps.
//   - A node, a watch, a session or a goroutine is left when all clients are
//     closed, or a request reaches the store in the day after that.
//
// Even seeds repeat exactly, because each client has one actor, except for about
// one in two hundred in which two goroutines of a client wake at the same
// instant. In odd seeds two actors share a client and may run concurrently, in
// an order that the seed does not decide. Run such a seed a few times.
//
// Package plant holds faults to put into the lock, many of which name the first
// seeds that see them. If one of them is no longer seen, the simulation has
// become weaker.
//
// # What is recorded
//
// A logical clock gives every call and every return a tick of its own.
//
//   - A grant, from call to return, with the units and the token, which tells a
//     re-entry from a grant.
//   - Unlock and Downgrade, from call to return, and the close of a client.
//   - Answers, except with the gate: each holder reads Err and Mode of its lock
//     continuously. A new holder also reads those of all other holders, which
//     should have learned of their loss by now. A nil Err means that the lock is
//     still held, in this mode. A non-nil Err shows when the holder has learned
//     of the loss.
//   - Calls without success. Two kinds go to the model, because they say how
//     the lock is held: a refused upgrade, and a re-entry into a lost lock. The
//     rest is for the rules below.
//   - Causes: the faults that can take a lock away, from before they began
//     until after they ended.
//
// # The model
//
// The state consists of the Locks held, with their modes, the highest token so
// far, and the highest token of a writer or of units. Each operation happens at
// one instant between its call and its return, and has to be possible in the
// state: see package internal/longtest/histories. An Unlock or a downgrade counts
// even if its outcome is unknown, because that is what its holder is told. A loss
// takes all Locks from a contender, at some instant after its cause and before
// the contender has learned of it. A close is a cause for all locks of the client,
// until it returns. It takes nothing from an Unlock that reports ErrUnlock, which
// may have reached the store before the close began. The same holds for the last
// Unlock if it reports the loss.
//
// There are two kinds of causes. If the store drops a silent session, the
// client must know before the store grants the lock to another contender.
// Therefore every answer counts: nobody may be granted the lock beside a holder
// that later answers "still held". But no client can know at once that an
// operator has removed a node, or has ended a session by force. Answers after
// such a cause prove nothing, and the release may be as early as the cause.
//
// # Other rules
//
//   - A lock is lost only for a cause.
//   - Tokens follow the clock: a contender that is known to be in the queue
//     before another one calls has the smaller token. Together with the model's
//     rule for tokens this means first come, first served.
//   - No contender is granted the lock while a contender ahead of it blocks it,
//     even one that gives up later.
//   - A try is refused only if, at some time of the call, the queue may have
//     held a node that blocks the mode of the try, or nodes that leave fewer
//     units than it wants. This rule proves much if no fault happens, and at
//     the end, when the queue is empty and each client tries in turn. It proves
//     little while the queue may hold nodes whose removal is unconfirmed. On an
//     ensemble a server may lag behind, so the rule applies only to a client
//     that has written before and thus has seen everything.
//   - Every error has its reason. A call times out only if it has a deadline,
//     and is cancelled only if its context was cancelled. It returns ErrClosed
//     only if a close has begun. A closed client acquires no lock. A second
//     Unlock fails, and so does that of a lost lock.
//   - A re-entry takes no lock of its own while its contender holds the lock,
//     never enters in a stronger mode, and reports no loss of a held lock.
//   - Once runs its function once for each tick, unless an operator removes the
//     queue, which holds the tick.
//   - A holder that has learned of a loss finds Lost closed and the lock's
//     contexts cancelled, within a bound.
//   - At the end of a history of Run no node is left in the queue, and no call
//     has waited for minutes.
//
// # When it fails
//
// A run with the gate prints its seed and journal. The search draws the history
// as an HTML page beside the records, and prints the file name and the seed. The
// page shows the operations by actor, the order that porcupine could find, the
// faults, and every lock from its grant to its end, with client, mode and token.
//
// Tests with broken drivers show what the package finds; see brokenSessions.
package history
