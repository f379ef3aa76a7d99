// Package history checks that the lock is linearizable: that whatever several clients did and
// saw while the store, the network and its operators failed them can be put into one order, true
// to the times at which calls began and returned, in which a plain read-write lock of one
// process would have done the same. (The idea is that of Herlihy and Wing, "Linearizability: A
// Correctness Condition for Concurrent Objects", 1990; the search for the order is porcupine's.)
//
// # What is recorded
//
// A clock that counts by one gives every call and every return a time of its own.
//
//   - A grant: Lock, RLock, TryLock or TryRLock that has won, from its call to its return, with
//     the token. A call without success says nothing: TryLock may fail for no reason, and Lock
//     may time out.
//   - Unlock and Downgrade, from call to return.
//   - Answers: everybody who holds a lock looks at its Err and Mode all the time, and whoever wins
//     one looks at those of all the others, who should have learned by now. Err nil says: still
//     held, and in this mode. Err lost says when the holder has learned of it.
//   - Causes: the faults that can take a lock away, from before they were played until after.
//
// # The model
//
// The state is who holds the lock and how, the highest token so far, and the highest exclusive
// one. Each operation happens at one instant between its call and its return:
//
//   - An exclusive grant needs a lock that nobody holds, and a token above all that were granted
//     before, since the lock is granted in the order of arrival.
//   - A shared grant needs a lock that nobody holds exclusively, and a token above all exclusive
//     ones. It does not raise the token that the next reader has to have.
//   - Unlock is a release between its call and its return, also if the outcome is unknown: the
//     holder counts as gone, and that a store keeps his node for longer lets nobody in.
//   - A downgrade turns exclusive into shared. If its outcome is unknown it does so at some time
//     before the lock is given back, or not at all.
//   - An answer "still held" needs its holder to hold the lock, in that mode.
//   - An operator's removal of a whole queue, in memory, where it is one instant: no node that
//     was in it can be granted later, and its holders are gone not before it.
//   - A loss is a release at some instant after its cause and before the holder has learned of it.
//
// There are two kinds of causes. A session that the store has dropped for its silence must be
// known to have ended here before the store lets anybody else in, so every answer counts: nobody
// may be let in beside somebody who says later that he still holds the lock. But nobody can
// know at once that an operator has removed a node, or ended a session by force: the answers
// that come after such a cause say nothing, and the release may be as early as the cause.
//
// # When it fails
//
// A history that has no such order is drawn as an HTML page in a file of the directory that
// DLOCK_HISTORY_DIR names (by default that of temporary files), which the test prints together
// with the seed.
package history
