// Package endtoend tests the read-write lock from package dlock down to a real
// ZooKeeper server. It checks the outcome against the server's own counters and
// tree.
package endtoend
