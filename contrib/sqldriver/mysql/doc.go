// Package mysql keeps the queues of dlock in a database of MariaDB, version
// 10.6 or later, or of MySQL, version 8.0.29 or later. It was not tried on
// MySQL. A blank import registers the driver for dlock.Open:
//
//	import _ "github.com/dlock-go/dlock/contrib/sqldriver/mysql"
//
//	client, err := dlock.Open("mysql", "shop:secret@tcp(db:3306)/shop?tls=true")
//
// A program that has a *sql.DB already uses [NewConnector] with
// dlock.NewClient.
//
// docs/stores/mysql.md says what those who run it need: rights, settings,
// fail-overs, and how to show and free locks. The guarantees of
// docs/use/guarantees.md hold under its conditions. Give all clients the same
// grace; the longest of all sessions applies to all.
//
// # Data source names
//
// A DSN has the form and the parameters of github.com/go-sql-driver/mysql, but
// sets no variables of the server. It has to name a database. A slash in a
// parameter is written as %2F. This package adds:
//
//	session_timeout  how long the database keeps a silent session, from
//	                 500ms to 1h (10s)
//	grace            how long no lock is granted after a restart or a fail-over,
//	                 from session_timeout to 1h (session_timeout)
//	empty_is_new     true: new tables need no grace; only for tests: see
//	                 docs/operate/fail-over.md (false)
//	max_connections  the connections of a session, at least 3 (8)
//	password_file    file with the password, read for each connection
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
// match driver.ErrUnavailable, and a wrong password or certificate after a first
// session. Others do not. No error contains the password.
//
// # Connections and requests
//
// Each change is one call of a procedure, in one round trip. A free lock takes
// two. Sessions that wait for a lock, or hold one for longer, poll. While a
// lock changes hands fast, the calls of its first 16 waiters wait in the
// server, for 30 ms at most.
//
// The server does not notice that a session has given up a request that waits
// for a lock, for example of a backup, and while an append waits, its session
// cannot be ended. Connections of a DSN lower innodb_lock_wait_timeout and
// lock_wait_timeout; those of a *sql.DB keep theirs, by default 50 seconds and
// a day.
//
// For clients in other languages, see docs/contribute/other-languages.md.
package mysql
