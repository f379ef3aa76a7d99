// Package testenv runs real servers for tests, whatever store they are. It has
// what does not depend on the store:
//
//   - [Process] is the process of a server, which a test kills, stops, pauses
//     and starts again. Nothing of it outlives the test binary.
//   - [Shared] holds the one server that all tests of a binary share.
//   - [FreePort] and [Listen] choose ports that no other test binary on the
//     machine uses. [RetryNewPorts] and [RetrySamePorts] start a server again
//     if one of its ports was taken all the same.
//   - [Proxy] is a TCP proxy that cuts, delays and drops connections. If it
//     knows the protocol, it also counts, loses and holds single requests,
//     replies and events.
//   - [SlowDiskCommand] makes the disk of a server slow.
//   - [ClockCommand] makes the wall clock of a server one that a test sets.
//   - [NewCerts] makes certificates.
//   - [KeepPasswords] looks for parts of passwords in the errors of DSNs.
//   - [Dependency] skips or fails a test if the machine lacks what the test
//     needs.
//
// A package for one store builds on it: zktest is that for ZooKeeper. The
// functions of testenv return errors, because a package for a store calls some
// of them again. But a function that takes a testing.TB reports trouble with
// t.Fatal, and has to be called from the goroutine of the test.
package testenv
