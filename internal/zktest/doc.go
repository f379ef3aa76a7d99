// Package zktest runs real ZooKeeper servers for tests: single servers,
// ensembles whose links can be cut, and a proxy that loses, holds and delays
// what passes between a client and a server. It is built on package testenv,
// which has what does not depend on the store.
//
// Package zktest needs Java and ZooKeeper's jars, from Debian's package
// zookeeper or from a release that ZOOKEEPER_HOME points to. If they are
// missing, tests are skipped and say so. If the environment variable
// DLOCK_TEST_ZOOKEEPER is "require", as `make test` sets it, tests fail
// instead: see [Require].
//
// [Curator] and [Kazoo] run programs that use lock libraries of others.
//
// No server outlives the test binary, see [testenv.Process].
//
// Unless a function says otherwise it reports trouble with t.Fatal, and has to
// be called from the goroutine of the test.
package zktest
