// Package zktest configures real ZooKeeper servers for tests: single servers, and
// ensembles whose links can be cut. A [Proxy] loses, holds and delays messages
// between a client and a server. See package testenv.
//
// It needs Java and ZooKeeper's jars, from Debian's package zookeeper or from a
// release that ZOOKEEPER_HOME points to. Tests without them are skipped, with a
// notice, unless the environment variable DLOCK_TEST_ZOOKEEPER is "require", as
// set by `make test`, which makes them fail, see [Require].
//
// [Curator] and [Kazoo] run programs that use other lock libraries.
package zktest
