// Package zktest runs real ZooKeeper servers for tests: single servers,
// ensembles whose links can be cut, and a proxy that loses, holds and delays
// messages between a client and a server. What does not depend on the store is
// in package testenv.
//
// It needs Java and ZooKeeper's jars, from Debian's package zookeeper or from a
// release that ZOOKEEPER_HOME points to. If they are missing, tests are skipped
// and say so, or fail if the environment variable DLOCK_TEST_ZOOKEEPER is
// "require", as `make test` sets it: see [Require].
//
// [Curator] and [Kazoo] run programs that use other lock libraries.
//
// No server outlives the test binary: see [testenv.Process].
//
// Unless stated otherwise, functions report trouble with t.Fatal, and so must
// be called from the goroutine of the test.
package zktest
