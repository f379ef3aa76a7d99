// Package zktest runs real ZooKeeper servers for tests: single servers,
// ensembles whose links can be cut, and a proxy that loses, holds and delays
// what passes between a client and a server.
//
// It needs Java and ZooKeeper's jars, from Debian's package zookeeper or from
// an upstream tarball that ZOOKEEPER_HOME points to. Where they are missing,
// tests skip and say so, or fail if DLOCK_TEST_ZOOKEEPER is "require", as
// `make test` sets it: see [Require].
//
// [Curator] and [Kazoo] run programs that use the lock libraries of others.
//
// Nothing outlives a test binary. Every server belongs to a small shell process in
// a session of its own which reads from a pipe of the test binary; when the
// binary ends, by whatever signal, the pipe ends, and the shell kills the
// server and removes its directory.
//
// Unless a function says otherwise it reports trouble with t.Fatal, and so is
// to be called from the goroutine of the test.
package zktest
