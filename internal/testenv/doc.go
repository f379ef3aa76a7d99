// Package testenv runs real servers for tests. It is the basis of packages for
// particular stores, such as zktest for ZooKeeper.
//
//   - [Store] starts servers: one for a test, several, or one that all tests of a
//     binary share. A store's package only configures them. A [Server] can be
//     killed, stopped, paused and restarted, and its clock and its disk can be
//     changed. It never outlives the test binary.
//   - [FreePort] and [Listen] choose ports that no other test binary on the
//     machine uses. A Store retries if another program has taken a port
//     nevertheless.
//   - [Proxy] is a TCP proxy that cuts, delays and drops connections and, if it
//     knows the protocol, counts, loses and holds individual requests, replies
//     and events.
//   - [Free] and [Contended] are benchmarks that compare dlock with what users
//     of a store write without it: each [Way] is one method of locking.
//   - [NewCerts] creates certificates.
//   - [KeepPasswords] checks that errors contain no part of a password.
//   - [Dependency] skips or fails a test if the machine lacks what it needs.
//
// Functions that take a testing.TB, and methods of a Server, report errors with
// t.Fatal and so must be called from the test's goroutine.
package testenv
