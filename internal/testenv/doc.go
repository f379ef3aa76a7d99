// Package testenv runs real servers for tests. It is the basis of packages for
// particular stores, such as zktest for ZooKeeper.
//
//   - [Process] is a server process that a test can kill, stop, pause and
//     restart. It never outlives the test binary.
//   - [Servers] starts servers of a store, also one that all tests of a binary
//     share.
//   - [FreePort] and [Listen] choose ports that no other test binary on the
//     machine uses. [Servers] and [RetrySamePorts] retry if another program has
//     taken a port nevertheless.
//   - [Proxy] is a TCP proxy that cuts, delays and drops connections and, if it
//     knows the protocol, counts, loses and holds individual requests, replies
//     and events.
//   - [SlowDiskCommand] slows down a server's disk.
//   - [ClockCommand] lets a test set a server's wall clock.
//   - [NewCerts] creates certificates.
//   - [KeepPasswords] checks that errors contain no part of a password.
//   - [Dependency] skips or fails a test if the machine lacks what it needs.
//
// Functions that take a testing.TB report errors with t.Fatal and so must be
// called from the test's goroutine. All others return errors, because the
// packages based on testenv retry some of them.
package testenv
