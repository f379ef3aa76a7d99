// Package etcdtest runs real etcd servers and clusters for tests. It is based
// on package testenv and does not need an etcd client library.
//
// It needs etcd and etcdctl in the PATH, for example from Debian's packages
// etcd-server and etcd-client. Tests without them are skipped, with a notice,
// unless the environment variable DLOCK_TEST_ETCD is "require", which makes
// them fail, see [Require].
//
// No server outlives the test binary, see [testenv.Process]. Unless stated
// otherwise, functions report errors with t.Fatal and so must be called from
// the test's goroutine.
package etcdtest
