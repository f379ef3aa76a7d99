// Package redistest runs real Redis servers for tests: single servers, Sentinels, and
// a proxy that loses, holds and counts requests. It is built on package testenv,
// which has what does not depend on the store.
//
// Package redistest needs the programs redis-server and redis-sentinel, of version 7
// or later, from Debian's packages redis-server and redis-sentinel. If one is
// missing, tests are skipped and say so. If the environment variable DLOCK_TEST_REDIS
// is "require", tests fail instead. The same holds for redis-cli, from Debian's package
// redis-tools, and for the tests that use it.
//
// No server outlives the test binary, see [testenv.Process]. Servers listen on
// loopback only. Unless a function says otherwise, it reports trouble with t.Fatal,
// and has to be called from the goroutine of the test.
package redistest
