// Package mysqltest configures real MariaDB servers for tests. See package testenv.
//
// It needs the programs of MariaDB, from Debian's packages mariadb-server and
// mariadb-client or on the PATH. Tests without them are skipped, with a notice,
// unless the environment variable DLOCK_TEST_MYSQL is "require", which makes them
// fail. [Server.SQL] runs the program mariadb.
package mysqltest
