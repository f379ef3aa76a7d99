// Package pgtest configures real PostgreSQL servers for tests. See package testenv.
//
// It needs the programs of PostgreSQL, from Debian's package postgresql or on the
// PATH. Tests without them are skipped, with a notice, unless the environment
// variable DLOCK_TEST_POSTGRES is "require", which makes them fail. [Server.SQL]
// runs psql.
package pgtest
