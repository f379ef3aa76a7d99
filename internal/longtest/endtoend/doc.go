// Package endtoend tests what only a real ZooKeeper server shows of the locks of
// package dlock: its counters of requests and watches, its containers, the nodes
// of other libraries and of attackers, lost replies, and killed processes. The
// tests of package recipes check the rules of the locks.
package endtoend
