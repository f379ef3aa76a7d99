// Package zktest runs real ZooKeeper servers for tests: single servers,
// ensembles whose links can be cut, and a proxy that loses, holds and delays
// messages between a client and a server. It is based on package testenv.
//
// It needs Java and ZooKeeper's jars, from Debian's package zookeeper or from a
// release that ZOOKEEPER_HOME points to. Tests without them are skipped, with a
// notice, unless the environment variable DLOCK_TEST_ZOOKEEPER is "require", as
// set by `make test`, which makes them fail, see [Require].
//
// [Curator] and [Kazoo] run programs that use other lock libraries.
//
// No server outlives the test binary, see [testenv.Process]. Unless stated
// otherwise, functions report errors with t.Fatal and so must be called from
// the test's goroutine.
package zktest
