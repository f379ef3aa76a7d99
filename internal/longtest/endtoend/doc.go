// Package endtoend tests the read-write lock from end to end: applications' sessions, package recipes, package zkdriver and
// one real ZooKeeper server, whose own counters and tree are looked at past all of them. It holds nothing but tests.
package endtoend
