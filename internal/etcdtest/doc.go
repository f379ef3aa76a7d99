// Package etcdtest runs real etcd servers for tests: single servers and
// ensembles. It is built on package testenv, which has what does not depend on
// the store.
//
// Package etcdtest needs the programs etcd and etcdctl, from Debian's packages
// etcd-server and etcd-client or from a release on the PATH. If they are
// missing, tests are skipped and say so. If the environment variable
// DLOCK_TEST_ETCD is "require", tests fail instead: see [Require].
//
// The package imports no client library. [Server.Etcdctl] runs etcd's own
// command. No server outlives the test binary, see [testenv.Process].
//
// Unless a function says otherwise it reports trouble with t.Fatal, and has to
// be called from the goroutine of the test.
package etcdtest
