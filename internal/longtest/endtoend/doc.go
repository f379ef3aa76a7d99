// Package endtoend holds tests only: the read-write lock from end to end, with
// the sessions of applications, package recipes, package zkdriver and one real
// ZooKeeper server. The tests also look at the server's own counters and tree,
// without any of these packages.
package endtoend
