// Package histories records histories of the lock: the calls of several clients
// and their results, under faults of the store, of the network and by
// operators.
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
// This command makes and judges the histories of all stores:
//
//	make histories
//
// The tests of this package need a real ZooKeeper, and are skipped without it.
// The environment variable DLOCK_HISTORIES names a directory for the records,
// without which there is no search:
//
//	DLOCK_HISTORIES=/tmp/records go test -race ./internal/histories
//	DLOCK_HISTORIES=/tmp/records go test -C internal/longtest ./histories
//
// The following commands make ten thousand histories in memory, repeat the one
// that a failing test has named, make ten times as many histories as usual on
// one ZooKeeper server, and use an ensemble of three servers that fail fifty
// times:
//
//	go test -run InMemory -seeds 10000 -timeout 1h .
//	go test -run InMemory -seeds 1 -seed 71 .
//	go test -run OnZooKeeper -batches 20 -timeout 1h .
//	go test -run OnAnEnsemble -server-faults 50 -timeout 1h .
//
// With -v each test prints what happened in its histories.
//
// # How the test of a driver uses it
//
// [Run] makes histories on any store, with the Config that the test of the
// driver passes to dlocktest.Run:
//
//	func TestHistoriesAreLinearizable(t *testing.T) {
//		histories.Run(t, histories.Store{
//			Of:     "mystore",
//			Config: config(t),
//			Outage: func(t *testing.T) (mend func()) {
//				server.Kill()
//				return func() { server.Restart() }
//			},
//		})
//	}
//
// TestRunMakesHistories does that for memdriver, in virtual time. The judge in
// internal/longtest/histories lists all stores, and fails if it finds no record
// of one of them.
//
// # What happens in a history
//
// Clients acquire locks in both modes, wait, try, give up, re-enter with the
// context of a lock (also while its holder uses it in another goroutine),
// downgrade, unlock, and are closed at any time. On a second queue most calls
// acquire units of a semaphore, and the others take the read-write lock of the
// same name, which excludes the semaphore. A call within a hold only tries there,
// because it may be no re-entry. Meanwhile faults happen:
//
//   - In memory, sessions expire, are cut off or paused. Requests and replies
//     are lost. An operator removes nodes and queues.
//   - On one server, connections are dropped, and requests and replies are
//     lost. Clients are cut off for up to two session timeouts, in both
//     directions or in one. Sessions are ended by force, and an operator
//     removes nodes. The faults prefer clients that hold a lock, and some wait
//     for exactly the request that creates or deletes a node.
//   - In a history of Run, the hooks of the Config are played, and an outage
//     ends the service for all clients.
//   - On an ensemble, all of that happens too, and leaders and followers are
//     killed and restarted, stopped, or cut off from each other.
//
// # What is recorded
//
// A logical clock gives every call and every return a tick of its own.
//
//   - A grant: a successful Lock, RLock, TryLock, TryRLock, Acquire or
//     TryAcquire, from call to return, with the units and the token, which
//     tells a re-entry from a grant.
//   - Unlock and Downgrade, from call to return, and the close of a client.
//   - Answers: each holder reads Err and Mode of its lock continuously. A new
//     holder also reads those of all other holders, which should have learned
//     of their loss by now. A nil Err means that the lock is still held, in
//     this mode. A non-nil Err shows when the holder has learned of the loss.
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
// one instant between its call and its return:
//
//   - An exclusive grant needs a lock that is not held, and a token above all
//     tokens granted before, because the lock is granted in the order of
//     arrival.
//   - A grant of units needs as many free units, no holder of the read-write
//     lock, and a token above all tokens granted before, whatever they want.
//     Otherwise units count as shared.
//   - A shared grant needs a lock that is held neither exclusively nor with
//     units, and a token above those of all writers and units. It does not
//     raise the token that the next reader needs.
//   - A re-entry needs its contender to hold the lock, and exclusively if that
//     is what it asks for. The refusal of an upgrade needs the contender to
//     hold the lock shared.
//   - Unlock takes one Lock from its contender, even if the outcome is unknown:
//     the holder no longer counts, and a node that stays in the store grants
//     the lock to nobody else. The last Unlock is the release. If only shared
//     Locks remain, an Unlock is a downgrade.
//   - A downgrade turns an exclusive Lock into a shared one, even if its
//     outcome is unknown, because that is what its holder is told.
//   - An answer "still held" needs that Lock to be held, in that mode.
//   - An operator's removal of a whole queue is one instant in memory. No node
//     that was in the queue can be granted later, and its holders do not lose
//     the lock before that instant.
//   - A loss takes all Locks from a contender, at some instant after its cause
//     and before the contender has learned of it. A close is a cause for all
//     locks of the client, until it returns. It takes nothing from an Unlock
//     that reports ErrUnlock, which may have reached the store before the close
//     began. The same holds for the last Unlock if it reports the loss.
//
// There are two kinds of causes. If the store drops a silent session, the
// client must know before the store grants the lock to another contender.
// Therefore every answer counts: nobody may be granted the lock beside a holder
// that later answers "still held". But no client can know at once that an
// operator has removed a node, or has ended a session by force. Answers after
// such a cause prove nothing, and the release may be as early as the cause.
//
// Locks of different names are judged separately. Each history is cut at
// instants without an operation in flight at which the state does not depend on
// the order of the operations before. This makes the search take milliseconds;
// one that does not end fails the test.
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
//     Unlock fails.
//   - A holder that has learned of a loss finds Lost closed and the lock's
//     contexts cancelled, within a bound.
//   - At the end no node is left in the queue, and no call has waited for
//     minutes.
//
// # When it fails
//
// The judge draws the history as an HTML page beside the records, and prints
// the file name and the seed. The page shows the operations by actor, the order
// that porcupine could find, the faults, and every lock from its grant to its
// end, with client, mode and token.
//
// Tests with broken drivers show what the package finds; see
// TestABrokenLockIsFound.
package histories
