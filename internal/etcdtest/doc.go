// Package etcdtest configures real etcd servers and clusters for tests, without an
// etcd client library. See package testenv.
//
// It needs etcd and etcdctl in the PATH, for example from Debian's packages
// etcd-server and etcd-client. Tests without them are skipped, with a notice,
// unless the environment variable DLOCK_TEST_ETCD is "require", which makes
// them fail, see [Require].
package etcdtest
