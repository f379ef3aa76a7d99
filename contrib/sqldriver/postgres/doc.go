// Package postgres keeps the queues of dlock in a PostgreSQL database, version
// 14 or later. Its tests run on PostgreSQL 15 and 18. A blank import registers it
// for dlock.Open:
//
//	import _ "github.com/dlock-go/dlock/contrib/sqldriver/postgres"
//
//	client, err := dlock.Open("postgres", "postgres://shop:secret@db:5432/shop")
//
// A program that has a *sql.DB already uses [NewConnector] with
// dlock.NewClient.
//
// # Guarantees
//
// The guarantees of docs/use/guarantees.md hold under these conditions:
//
//   - There is one primary server, with fsync and full_page_writes on. After the
//     promotion of a standby, the old primary answers no client, or
//     synchronous_standby_names waits for every standby, as 'FIRST 2 (s1, s2)'
//     does for two. Nobody cancels the commits of a *sql.DB that wait for a
//     standby (pg_cancel_backend): its connections hide the server's warning.
//   - All clients have the same grace, at least the longest session timeout of
//     any of them. The longest of all sessions that exist counts for all.
//   - The clock of the server is not set forward by a quarter of the session
//     timeout or more, except while the server is stopped.
//   - No older copy of the data directory is started without recovery, and no
//     rows are restored into the same tables.
//
// The isolation level has to be read committed, which is the default; the driver
// refuses others. If synchronous_commit is off, the functions set it to on for
// their transactions. Amazon Aurora needs rds.logical_replication.
//
// A release lets the next contender in at once, and only the caller of Unlock
// waits until it is on the disk and on the standbys that have to confirm it. If
// the server crashes in between, the old node may be there again, and blocks
// later contenders until its session removes it or ends.
//
// docs/operate/fail-over.md says which events cost all locks, and what the
// grace is. A restart of the same server keeps them.
//
// # Data source names
//
// A DSN is a URL as pgx and libpq read it, or of the form host=... dbname=...,
// with the parameters of pgx, such as sslmode, sslrootcert, target_session_attrs
// and application_name. Environment variables such as PGPASSWORD count as well.
// Parameters of libpq alone and of pgxpool, and settings of the server, such as
// keepalives, pool_max_conns and statement_timeout, are refused. A DSN may name
// several hosts: a session uses the one that is the primary server. These
// parameters are of this package:
//
//	session_timeout  how long the database keeps a session that it does not hear
//	                 from, from 500ms to 1h (10s)
//	schema           the schema of the tables (dlock)
//	max_connections  the connections of a session, at least 3 (8)
//	notify           false: look for changes, do not LISTEN (true)
//	grace            how long no lock is granted after a fail-over, from
//	                 session_timeout to 1h (session_timeout)
//	empty_is_new     true: a schema that has had no session needs no grace; for
//	                 tests only, because a lock may have two holders if all data
//	                 are lost (false)
//
// # Errors
//
// Network errors match driver.ErrUnavailable, and so do errors of the server that
// may pass: those of a standby, of classes 08, 40, 53, 57P and 58, and the like.
// Others, such as a wrong password, do not. A change that waits for a row lock,
// for example of a transaction that an operator has left open, gives up after
// two seconds, unless lock_timeout is set. No error contains the password.
//
// # Connections and requests
//
// Each change is one call of a database function, in one round trip. A free lock
// takes two. A session that waits for a lock, or holds one for longer, listens
// on one connection, which heartbeats and polls use as well. With it, a hand-over
// takes one request. Other connections are opened as needed, and closed when
// they have been idle for a quarter of the session timeout, at most a minute. If
// no notices arrive, the session polls: see package driver/session.
//
// Behind pgbouncer in transaction mode, notices do not arrive. Set notify=false
// to skip the attempts. Before version 1.21, pgbouncer also needs
// default_query_exec_mode=exec.
//
// Connections of a DSN use client_encoding UTF8, and those of a *sql.DB have to.
// The encoding UTF8 is best for the database, because others refuse names with
// characters that they do not have.
//
// # Tables and permissions
//
// The first session creates the tables and functions, which the file schema.sql
// describes. If the user may not create them, the error of Connect contains the
// statements for an operator, and the rights that the user needs. [Statements]
// returns the former. default_transaction_read_only must be off for the user.
//
// No other user may create objects in the schema. Of other schemas, only
// pg_catalog is used, whatever search_path a connection has.
//
// Each user with rights on the tables may remove the nodes of others. Each user
// that may connect to the database may send false notices, which make sessions
// look at their queues, but release no lock. Programs that decode the WAL must
// ignore messages with the prefix dlock, which are empty.
//
// docs/operate/operating.md shows and frees locks with SQL. Clients in other
// languages call the same functions: see docs/contribute/other-languages.md.
package postgres
