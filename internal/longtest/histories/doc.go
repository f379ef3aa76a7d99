// Package histories checks that the lock is linearizable: that whatever several clients did and
// saw while the store, the network and its operators failed them can be put into one order, true
// to the times at which calls began and returned, in which a plain read-write lock of one
// process would have done the same. (The idea is that of Herlihy and Wing, "Linearizability: A
// Correctness Condition for Concurrent Objects", 1990; the search for the order is porcupine's.)
//
// # How to run it
//
// All of it, in this directory, with a real ZooKeeper if there is one:
//
//	go test -race .
//
// Ten thousand histories in memory; the one that a failing test has named, once more; ten times as many
// on one ZooKeeper server; and one on an ensemble of three whose servers fail fifty times:
//
//	go test -run InMemory -seeds 10000 -timeout 1h .
//	go test -run InMemory -seeds 1 -seed 71 .
//	go test -run OnZooKeeper -batches 20 -timeout 1h .
//	go test -run OnAnEnsemble -server-faults 50 -timeout 1h .
//
// With -v each says what its histories were made of.
//
// # What is played
//
// Clients take locks in both modes, wait, try, give up, enter again with the context of a lock
// (beside its holder on another goroutine, too), downgrade, unlock, and are closed in the midst
// of it. Meanwhile, in memory: sessions expire, are cut off or paused; requests and replies are lost;
// an operator removes nodes and queues. On one server: connections are dropped, requests and replies are
// lost, clients are cut off for up to two session timeouts, both ways or one way only,
// sessions are ended by force, and the operator is there as well; the faults prefer clients that hold a lock,
// and some wait for the very request that takes or gives back a lock. On an ensemble, all that,
// and leaders and followers are killed and started again, stand still, or are cut off from each
// other.
//
// # What is recorded
//
// A clock that counts by one gives every call and every return a time of its own.
//
//   - A grant: Lock, RLock, TryLock or TryRLock that has won, from its call to its return, with
//     the token. A re-entry is told from a grant by its token.
//   - Unlock and Downgrade, from call to return; and the close of a client.
//   - Answers: everybody who holds a lock looks at its Err and Mode all the time, and whoever wins
//     one looks at those of all the others, who should have learned by now. Err nil says: still
//     held, and in this mode. Err lost says when the holder has learned of it.
//   - Calls without success: what they say of the lock (an upgrade that was refused, a re-entry
//     into what was lost) goes to the model, the rest to the rules below.
//   - Causes: the faults that can take a lock away, from before they were played until after.
//
// # The model
//
// The state is who holds the lock, with which Locks in which modes, the highest token so far, and the
// highest exclusive one. Each operation happens at one instant between its call and its return:
//
//   - An exclusive grant needs a lock that nobody holds, and a token above all that were granted
//     before, since the lock is granted in the order of arrival.
//   - A shared grant needs a lock that nobody holds exclusively, and a token above all exclusive
//     ones. It does not raise the token that the next reader has to have.
//   - A re-entry needs its contender to hold the lock, and exclusively if that is what it wants.
//     The refusal of an upgrade needs him to hold it shared.
//   - Unlock takes one Lock off its contender, also if the outcome is unknown: the holder counts as
//     gone, and that a store keeps his node for longer lets nobody in. The last one is the release.
//     Where only shared ones remain, it is a downgrade.
//   - A downgrade turns an exclusive Lock into a shared one, also if its outcome is unknown, as that
//     is what its holder is told.
//   - Where the goroutines of a client share a place, a grant may have the token of the
//     grant before, if that was of the same client. A shared one may also have the token
//     of a Lock of the same client that is still held: after a downgrade readers enter
//     the place although readers of other clients, with higher tokens, have entered
//     before. The order of arrival is each client's own then, and the rules about it say
//     nothing.
//   - An answer "still held" needs that Lock to be held, in that mode.
//   - An operator's removal of a whole queue, in memory, where it is one instant: no node that
//     was in it can be granted later, and its holders are gone not before it.
//   - A loss takes all Locks off a contender, at some instant after its cause and before he has
//     learned of it. A close is a cause for all locks of the client, and over when it
//     returns. It takes nothing from an Unlock that says ErrUnlock: the lock was held
//     until that call, which may have reached the store before the close began.
//
// There are two kinds of causes. A session that the store has dropped for its silence must be
// known to have ended here before the store lets anybody else in, so every answer counts: nobody
// may be let in beside somebody who says later that he still holds the lock. But nobody can
// know at once that an operator has removed a node, or ended a session by force: the answers
// that come after such a cause say nothing, and the release may be as early as the cause.
//
// Locks of different names are judged apart, and each history is cut at instants at which nothing
// went on, where the state does not depend on the order of what was before: so the search takes
// milliseconds. If it does not come to an end all the same, the test fails.
//
// # Other rules
//
//   - Nobody loses a lock without a cause.
//   - Tokens follow the clock: whoever is known to stand in the queue before another one calls has
//     the smaller token. With the model's rule for tokens that is first come, first served.
//   - A grant passes nobody who stands before it in the queue and is in its way, also if he gives up later.
//   - A try is refused only if, in all its time, somebody may have stood in the queue who is in
//     the way of its mode. That says much where nothing fails, and in the end, when everybody has gone,
//     the queue is empty and each client tries in turn; it says little while nodes of unknown
//     fate may stand there. On an ensemble a server may be behind the others: there it is
//     demanded only of a client that has written before, and so has seen everything.
//   - Every error has its reason: a timeout a deadline, a cancellation a cancel, ErrClosed a close
//     that has begun. A closed client gets nothing. A second Unlock says so.
//   - Who has learned of a loss finds Lost closed and the lock's contexts cancelled, within a bound.
//   - When everybody has gone nothing is left in the queue, and nobody has waited for minutes.
//
// # When it fails
//
// The history is drawn as an HTML page in a file of the directory that DLOCK_HISTORY_DIR names
// (by default that of temporary files), which the test prints together with the seed. It shows
// the operations by who made them, what porcupine could put into order, and beside that the faults and
// every lock from its grant to its end, with client, mode and token.
//
// What it would find is tried with broken drivers; see TestABrokenLockIsFound.
package histories
