// Package redistest runs real Redis servers and Sentinels for tests, and a
// proxy that loses, holds and counts requests. It is based on package testenv.
//
// It needs redis-server and redis-sentinel, version 7 or later, from Debian's
// packages of these names, and for some tests redis-cli, from redis-tools.
// Tests without them are skipped, with a notice, unless the environment
// variable DLOCK_TEST_REDIS is "require", which makes them fail.
//
// No server outlives the test binary, see [testenv.Process]. Servers listen on
// the loopback interface only. Unless stated otherwise, functions report errors
// with t.Fatal and so must be called from the test's goroutine.
package redistest
