// Package pgtest runs real PostgreSQL servers for tests. It is built on package
// testenv, which has what does not depend on the store.
//
// Package pgtest needs the programs of PostgreSQL, from Debian's package
// postgresql or on the PATH. If they are missing, tests are skipped and say so.
// If the environment variable DLOCK_TEST_POSTGRES is "require", tests fail
// instead: see [Require].
//
// The package imports no client library. [Server.SQL] runs psql. PostgreSQL
// refuses to run as root, so root runs it as the user postgres. No server
// outlives the test binary, see [testenv.Process].
//
// Unless a function says otherwise it reports trouble with t.Fatal, and has to
// be called from the goroutine of the test.
package pgtest
