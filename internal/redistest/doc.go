// Package redistest configures real Redis servers and Sentinels for tests, and has
// a proxy that loses, holds and counts requests. See package testenv.
//
// It needs redis-server and redis-sentinel, version 7 or later, and redis-cli, from
// Debian's packages redis-server, redis-sentinel and redis-tools. Tests without
// them are skipped, with a notice, unless the environment variable
// DLOCK_TEST_REDIS is "require", which makes them fail.
package redistest
