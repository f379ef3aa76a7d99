// Package mysql keeps the queues of dlock in a database of MariaDB, version
// 10.6 or later, or of MySQL, version 8.0.29 or later. Its tests run on MariaDB
// 10.11. The statements are common to both products, but they were not tried on
// MySQL. A blank import registers the driver for dlock.Open:
//
//	import _ "github.com/dlock-go/dlock/contrib/sqldriver/mysql"
//
//	client, err := dlock.Open("mysql", "shop:secret@tcp(db:3306)/shop?tls=true")
//
// A program that has a *sql.DB already uses [NewConnector] with
// dlock.NewClient.
//
// # Guarantees
//
// The guarantees of docs/use/guarantees.md hold under these conditions:
//
//   - There is one primary server. After a replica was promoted, the old primary
//     answers no client, or is read-only.
//   - All clients have the same grace, at least the longest session timeout of
//     any of them. The longest of all sessions that exist counts for all.
//   - The clock of the server is not set forward by a quarter of the session
//     timeout or more.
//   - In a Galera cluster, all clients use the same member, because members do
//     not share row locks. A failover to another member was not tested.
//   - No dump is loaded into a running server that clients use, and no virtual
//     machine is reverted with its memory.
//
// Before each session, the driver refuses a server that is read-only, whose
// binary log has the format STATEMENT, that is in a group with several
// primaries, or that is too old. It logs a warning about a Galera cluster, and
// about clients with a longer grace.
//
// docs/operate/fail-over.md says which events cost all locks, and what the
// grace is.
//
// # Data source names
//
// A DSN has the form that github.com/go-sql-driver/mysql reads, with the
// parameters of that package. It has to name a database, which holds the
// tables. A slash in a parameter is written as %2F. A DSN cannot set variables
// of the server. These parameters are of this package:
//
//	session_timeout  how long the database keeps a session that it does not hear
//	                 from, from 500ms to 1h (10s)
//	grace            how long no lock is granted after a restart or a fail-over,
//	                 from session_timeout to 1h (session_timeout)
//	empty_is_new     true: tables that have had no session need no grace; for
//	                 tests only, because a lock may have two holders if all data
//	                 are lost (false)
//	max_connections  the connections of a session, at least 3 (8)
//	tls_ca           file of certificates to trust, PEM (the system's)
//	tls_cert         file of the client's certificate, PEM
//	tls_key          file of its key, PEM
//	tls_server_name  the name expected in the server's certificate (the host)
//
// Those that begin with tls_ need tls=true.
//
// # Errors
//
// Errors of the network, of a server that stops or has too many connections, of
// full disks and memory, of a read-only server, and of terminated statements
// match driver.ErrUnavailable. Others, such as a wrong password, do not. After
// a deadlock the driver retries, up to seven times. MariaDB does not report a
// full disk of its binary log: it waits until an operator makes room, and
// sessions end meanwhile. No error contains the password.
//
// # Connections and requests
//
// Each change is one call of a stored procedure: one round trip and one
// transaction. A free lock takes two. The database sends no notices, so sessions
// that wait for a lock, or hold one for longer, poll: see package
// driver/session. While a lock changes hands fast, the calls of its first 16
// waiters wait in the server, for 30 ms at most. There the first one looks every
// 0.3 ms, and the others wait with GET_LOCK for the call of the one ahead. A
// poll reads all nodes of its queues, so if hundreds of sessions wait for one
// lock, use a store with notices.
//
// Connections are opened as needed, and closed when they have been idle for a
// quarter of the session timeout, at most a minute. A session keeps no state in
// them, so a proxy may pool transactions. It must send CALL and SHOW to the
// primary server.
//
// The server does not notice that a session has given up a request: it goes on
// waiting for a lock, for example of a backup, and occupies a thread, and while
// an append waits, its session cannot be ended. Connections of a DSN lower
// innodb_lock_wait_timeout and lock_wait_timeout to the time after which
// sessions give up. Those of a *sql.DB keep their settings, which are 50 seconds
// and a day by default. While all tables are locked, as by FLUSH TABLES WITH READ
// LOCK, heartbeats wait too, and sessions may end after more than half of the
// session timeout.
//
// # Tables and permissions
//
// The first session creates the tables and procedures, which the file schema.sql
// describes. If the user may not create them, the error of Connect contains the
// statements for an operator, and the rights that the user needs. [Statements]
// returns the former. Each user with rights on the tables may remove the nodes of
// others.
//
// docs/operate/operating.md shows and frees locks with SQL. Clients in other
// languages call the same procedures: see docs/contribute/other-languages.md.
package mysql
