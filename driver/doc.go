// Package driver defines the contract between dlock and the stores that keep
// its locks.
//
// Applications do not use this package. Driver authors implement [Driver],
// [Connector] and [Session], optionally [Inspector] and [Checker], and check
// the result with package dlocktest.
//
// # Terms
//
//   - A queue is a named, ordered set of nodes in the store. Each lock is one
//     queue.
//   - A node belongs to the session that created it. The store removes the node
//     when that session ends.
//   - A session is the store's view of one client. The store drops a session
//     that it has not heard from for the session timeout.
//   - A contender is a call of Lock or RLock that has a node in the queue. It
//     is a waiter until it holds the lock, and a holder after that.
//   - The caller of a session is package recipes, or a driver that wraps
//     another driver.
//
// # Rules
//
// The locks are correct if the driver keeps the following thirteen rules. The
// method comments give each rule in full, and dlocktest checks the rules by
// number:
//
//  1. Order: once a node has been listed, or its Create has returned, no new
//     node appears before it.
//  2. Names: a node's name is its prefix followed by its sequence, in at least
//     ten digits. A queue is never listed as a node.
//  3. Tokens rise strictly in the order of creation, for the whole history of a
//     queue.
//  4. All or nothing: a Create that returns an error leaves no node.
//  5. Ahead: if Create returns the nodes ahead of its node, it returns all of
//     them.
//  6. Watch: a watch is armed when Watch returns. It reports every later removal
//     or replacement of one of its nodes.
//  7. Delete removes the node that Create returned, and never another one.
//  8. Session end: a session reports its end before another session can get its
//     locks.
//  9. Close removes the session's nodes before it returns nil.
//  10. Methods are safe for concurrent use, return when their context ends, and
//     return errors that match those of this package, such as [ErrUnavailable].
//  11. Nothing outlives Close.
//  12. Replace is atomic, and the node keeps its place in the queue.
//  13. Released: a watch sends Released for a Delete with the cause Released, and
//     for nothing else.
//
// # Help for drivers
//
// Drivers need not use the following:
//
//   - Package session implements a Session on a store that has no sessions.
//   - [Lease] implements rule 8.
//   - [FormatName], [ParseName], [CheckQueue] and [CheckPrefix] implement the
//     names of rule 2.
//   - Package watches keeps a session's open watches: rules 6 and 13.
package driver
