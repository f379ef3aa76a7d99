// Package mysqltest runs real MariaDB servers for tests. It is built on package
// testenv, which has what does not depend on the store.
//
// Package mysqltest needs the programs of MariaDB, from Debian's packages
// mariadb-server and mariadb-client or on the PATH. If they are missing, tests are
// skipped and say so. If the environment variable DLOCK_TEST_MYSQL is "require",
// tests fail instead: see [Require].
//
// The package imports no client library. [Server.SQL] runs the program mariadb. No
// server outlives the test binary, see [testenv.Process].
//
// Unless a function says otherwise it reports trouble with t.Fatal, and has to be
// called from the goroutine of the test.
package mysqltest
