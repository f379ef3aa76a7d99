// Package postgres keeps the queues of dlock in a PostgreSQL database, version
// 14 or later. A blank import registers it for dlock.Open:
//
//	import _ "github.com/dlock-go/dlock/contrib/sqldriver/postgres"
//
//	client, err := dlock.Open("postgres", "postgres://shop:secret@db:5432/shop")
//
// A program that has a *sql.DB already uses [NewConnector] with
// dlock.NewClient.
//
// docs/stores/postgresql.md says what those who run it need: proxies, rights,
// settings, fail-overs, and how to show and free locks. The guarantees of
// docs/use/guarantees.md hold under its conditions. Give all clients the same
// grace; the longest of all sessions applies to all.
//
// # Data source names
//
// A DSN is a URL as pgx and libpq read it, or of the form host=... dbname=...,
// with the parameters of pgx. Environment variables such as PGPASSWORD count as
// well. Parameters of libpq alone and of pgxpool, and settings of the server,
// are refused. This package adds:
//
//	session_timeout  how long the database keeps a silent session, from
//	                 500ms to 1h (10s)
//	schema           the schema of the tables (dlock)
//	max_connections  the connections of a session, at least 3 (8)
//	notify           false: look for changes, do not LISTEN (true)
//	password_file    file with the password, read for each connection, as are
//	                 sslrootcert, sslcert, sslkey and passfile
//	grace            how long no lock is granted after a fail-over, from
//	                 session_timeout to 1h (session_timeout)
//	empty_is_new     true: a new schema needs no grace; only for tests: see
//	                 docs/operate/fail-over.md (false)
//
// # Errors
//
// Errors of the network match driver.ErrUnavailable, and errors of the server
// that may pass, such as those of a standby or, after a first session, of a wrong
// password. Others do not. A change that waits for a row lock gives up after two
// seconds, unless lock_timeout is set. No error contains the password.
//
// # Connections and requests
//
// Each change is one call of a function, in one round trip. A free lock takes
// two. A session that waits for a lock, or holds one for longer, listens on one
// connection. With it, a hand-over takes one request. If no notices arrive, the
// session polls.
//
// A release lets the next contender in at once, and only the caller of Unlock
// waits for the disk and the standbys. If the server crashes in between, the
// old node may be there again until its session removes it or ends.
//
// Connections of a *sql.DB need client_encoding UTF8. A database of another
// encoding refuses names with characters that it lacks. The functions turn
// synchronous_commit on for their transactions. WAL decoders must ignore
// messages with the prefix dlock.
//
// For clients in other languages, see docs/contribute/other-languages.md.
package postgres
