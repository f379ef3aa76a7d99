// Package driver is the contract between dlock and the stores that keep its
// locks.
//
// Applications do not use this package. They import a driver for its side
// effect and call dlock.Open. An author of a driver implements [Driver],
// [Connector] and [Session], may implement the optional interfaces of this
// package, and checks the result with package dlocktest.
//
// # Terms
//
//   - A queue is a named, ordered set of nodes in the store. Each lock is one
//     queue.
//   - A node belongs to the session that created it. The store removes the node
//     when that session ends.
//   - A session is what the store knows of one client. The store drops a session
//     that it has not heard from for the session timeout.
//   - A contender is a call of Lock or RLock that has a node in the queue. It is
//     a waiter until it holds the lock, and a holder after that.
//   - The caller of a session is package recipes, or a driver that wraps another
//     driver.
//
// # Rules
//
// A driver keeps thirteen rules. The locks are correct if it keeps all of them.
// The comments of the methods give each rule in full, and dlocktest checks the
// rules by their numbers:
//
//  1. Order: once a node has been listed, or its Create has returned, no new
//     node appears before it.
//  2. Names: the name of a node is its prefix and its sequence, in at least ten
//     digits. A queue is never listed as a node.
//  3. Tokens rise strictly in the order of creation, for the whole history of a
//     queue.
//  4. All or nothing: a Create that returns an error leaves no node.
//  5. Ahead: if Create returns the nodes ahead of its node, it returns all of
//     them.
//  6. Watch: a watch is armed when Watch returns. If one of its nodes is
//     removed or replaced after that, the watch reports it.
//  7. Delete removes the node that Create returned, and never another one.
//  8. Session end: a session reports its end before another session can get its
//     locks.
//  9. Close removes the nodes of the session before it returns nil.
//  10. Methods are safe for many goroutines, return when their context ends,
//     and return errors that match those of this package, such as
//     [ErrUnavailable].
//  11. Nothing outlives Close.
//  12. Replace is atomic, and the node keeps its place in the queue.
//  13. Released: a watch sends Released for a Delete with the cause Released, and
//     for nothing else.
//
// # Help for drivers
//
// The following is not part of the contract. A driver may use it or not:
//
//   - [Lease] implements rule 8.
//   - [FormatName], [ParseName], [CheckQueue] and [CheckPrefix] implement the
//     names of rule 2.
//   - Package watches keeps the open watches of a session: rules 6 and 13.
//   - Package calls makes calls of client libraries whose functions take no
//     context, and waits for calls in flight: rules 10 and 11.
package driver
