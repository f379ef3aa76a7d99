// Package postgres keeps the queues of dlock in a PostgreSQL database, version
// 14 or later. Its tests run on PostgreSQL 15. A blank import registers it for
// dlock.Open:
//
//	import _ "github.com/dlock-go/dlock/contrib/sqldriver/postgres"
//
//	client, err := dlock.Open("postgres", "postgres://shop:secret@db:5432/shop")
//
// A program that has a *sql.DB already uses [NewConnector] with
// dlock.NewClient.
//
// # The data source name
//
// A DSN is a URL as pgx and libpq read it, with the same parameters, such as
// sslmode, sslrootcert, target_session_attrs and application_name. Environment
// variables such as PGPASSWORD count as well. Parameters of pgxpool and
// settings of the server, such as pool_max_conns and statement_timeout, are
// refused. A DSN may name several hosts: a session uses the one that is the
// primary server. If there is no connect_timeout, a host that does not answer
// is passed over after a part of the session timeout. These parameters are of
// this package:
//
//	session_timeout  500ms to 1h, 10s if missing: the time for which the database
//	                 keeps a session that it does not hear from
//	schema           the schema of the tables, "dlock" if missing
//	max_connections  at least 3, 8 if missing: the connections of a session
//	notify           false: look for changes, do not LISTEN
//	grace            how long no lock is granted after a fail-over, session_timeout
//	                 if missing, up to 1h
//	empty_is_new     true: a schema that has had no session needs no grace. For
//	                 tests. If all data are lost, there may be two holders until
//	                 the leases of earlier holders are over
//
// # How it works
//
// A session is a row with a deadline by the server's clock, extended by
// heartbeats. A queue is a row with a version, and a node is a row with a
// token. Each change is one call of a database function or procedure, in one
// round trip. It locks the queue's row before it draws the token, so that
// commit order is token order. A free lock takes two transactions.
//
// A change that removes a node and leaves others in the queue sends a notice. A
// session that waits for a lock, or holds one for longer, listens on one
// connection, on which PostgreSQL delivers notices in commit order. Heartbeats
// use that connection too, so a session at rest has no other: those that calls
// have used are closed when they have been idle for a quarter of the session
// timeout. If no notices arrive, the session polls its queues, all in one
// statement: first after 2 ms, then less and less often, down to every 250 ms.
//
// # The rules of package driver
//
//	 1 order         the row of the queue is locked before the token is drawn
//	 2 names         the sequence is the token, which no other node ever gets
//	 3 tokens        one counter for all queues, which is never set back; each
//	                 generation of the data begins at the clock or higher
//	 4 all or none   appends carry a generation; clearing up after a lost reply raises
//	                 it, so that an append that arrives later is refused
//	 5 ahead         a statement after the lock of the queue reads it; nodes with lower
//	                 tokens were committed before
//	 6 watch         listen, arm the watch, look; a new connection ends all watches
//	 7 delete        by token, and only nodes of the session
//	 8 session end   driver.Lease; heartbeats commit synchronously; a session is ended
//	                 by its deadline, compared with clock_timestamp()
//	 9 close         the session's row is locked, and removed with its nodes
//	10 methods       codes of errors: see below
//	11 nothing left  a session has its own pool, and closes it
//	12 replace       one update of one row
//	13 released      notices in the order of the commits, on one connection
//
// Errors of classes 08, 40, 53, 57P and 58, network errors, and those of a
// standby server match driver.ErrUnavailable. Others, such as a wrong password,
// do not. A change that waits for a row lock, for example of a transaction that
// an operator has left open, gives up after two seconds, unless lock_timeout is
// set.
//
// The rows that such a transaction has locked cannot be removed. If a process
// dies whose node or queue is among them, it keeps all its locks until the
// transaction ends. Its session has a deadline in the past: see Tables. Other
// processes that die lose their locks in time.
//
// # What the database must be
//
//   - One primary server. fsync and full_page_writes must be on. If
//     synchronous_commit is off, the functions set it to on for their
//     transactions.
//   - After the promotion of a standby, the old primary answers no client, or
//     heartbeats wait for every standby: see "Fail-over".
//   - All clients have the same grace, at least the longest session timeout of
//     any of them.
//   - The clock of the server must not be set forward: see "The clock of the
//     server".
//   - No older copy of the data directory is started without recovery, as after
//     the revert of a virtual machine: that looks like a restart.
//   - The isolation level read committed, which is the default. Any other is
//     refused.
//   - The encoding UTF8 is best, because other databases refuse names with
//     characters that they do not have. Connections of a DSN always use
//     client_encoding UTF8. The connections of a *sql.DB have to use it, too.
//   - default_transaction_read_only must be off.
//   - Programs that decode the WAL must ignore messages with the prefix dlock,
//     which are empty.
//   - Each user that may connect to the database may send false notices. They
//     make sessions look at their queues, but release no lock.
//
// A release lets the next contender in at once. Only the caller of Unlock waits
// until the release is on the disk, and on the standbys that have to confirm
// it. If the server crashes in between, the old node may be there again. It
// then keeps later contenders waiting until its session removes it or ends.
//
// # Fail-over
//
// A standby that is promoted may lack the latest changes, and so may a restored
// backup or dump. The driver notices that, and lets nobody have a lock until
// all leases of earlier holders are over. The data belong to a generation,
// which is named by the cluster, the database, the table of sessions and the
// timeline of the server. It changes with every promotion, also of a synchronous
// standby, with a recovery to a point in time, and if the schema is restored
// from a dump, copied with its database, or dropped. Every request except the
// removal of a node then ends its session, and Connect waits for the grace,
// which it logs with log/slog. Calls of Lock wait meanwhile. A restart of the same
// server, also after a crash, keeps all locks. Rows that are restored into the
// same tables (pg_restore --data-only) are not noticed.
//
// The first session ever in a schema waits for the grace, too, because a new
// schema looks like one that was lost.
//
// Tokens rise, except if the clock of the new server is behind that of an
// earlier one by more than the grace, and the data lack the begin of the earlier
// one's generation, as a lost schema does.
//
// A primary that was replaced but still answers its clients would go on to renew
// leases. It can not if heartbeats have to wait for every standby, as with
// synchronous_standby_names = 'FIRST 2 (s1, s2)' for two: none confirms them
// once it is promoted or follows another server. They wait even if
// synchronous_commit is local. If fewer standbys have to confirm, or if a tool
// shortens the list, stop the old primary before another server is promoted, or
// a lock may have two holders.
//
// The same server must not come back as it was after another one was promoted:
// its timeline has not changed. Let it follow the new primary (pg_rewind), and
// promote it again if you have to.
//
// # The clock of the server
//
// Tests of this package set the clock of a real server while locks are held.
// They show what a step of the clock does:
//
//	back            No lock is lost. There is one holder at most, and tokens rise. The
//	                locks of a process that died before the step stay longer, by the
//	                size of the step.
//	forward, by     The next heartbeat of any session ends the sessions that have sent
//	more than the   none since the step, and grants their locks to the next contenders.
//	session         The token of the new holder is higher. The old holder learns of its
//	timeout         loss by a notice or with its next heartbeat, within an eighth of the
//	                session timeout. If it is cut off from the server, its lease ends by
//	                its own clock. Until then there are two holders.
//
// After a restart the clock may differ, so each session gets its full timeout
// by the new clock before it can be ended.
//
// A step forward by less than a quarter of the session timeout is harmless,
// because a lease ends that much earlier than the session in the database. Let
// the machine's time service slew the clock instead of setting it.
//
// # Proxies that pool transactions
//
// Behind pgbouncer in transaction mode, locks work, but notices do not arrive.
// The session detects that, and polls. Set notify=false to skip the attempts.
// Before version 1.21, pgbouncer does not support prepared statements, and
// needs default_query_exec_mode=exec as well.
//
// # Tables
//
// The first session creates the tables and functions while others wait. If the
// user may not create them, the error of Connect contains the statements, which
// [Statements] returns as well. The comments of schema.sql describe the tables.
// To show a queue:
//
//	SELECT name, session FROM dlock.node WHERE queue = 'stock/42' ORDER BY token;
//
// To show the sessions, with the time until their deadlines:
//
//	SELECT id, deadline - now() AS rest FROM dlock.session ORDER BY rest;
//
// Statements by hand reach the watches: triggers send the notices. To remove a
// node:
//
//	DELETE FROM dlock.node WHERE queue = 'stock/42' AND name = 'web1-W-0000000007';
//
// To make a job that runs once per period run again, remove its value:
//
//	DELETE FROM dlock.kept WHERE queue = 'nightly';
//
// A client in another language can take part by these statements. Each one is a
// transaction of its own. Begin a session, whose id no other session has. If
// the column wait is not 0, repeat this after that many milliseconds:
//
//	SELECT * FROM dlock.begin_session('A7', interval '10 seconds');
//
// Move its deadline every 1.25 seconds. The statement returns null if the
// session has ended. The client has lost its locks 7.5 seconds after it sent
// the last of these statements that succeeded:
//
//	SELECT dlock.beat('A7');
//
// Append a node, with data that differs each time. The result begins with "ok"
// and the token:
//
//	CALL dlock.append('A7', 1, 'stock/42', 'web2-W-', 'A7-1', NULL, NULL, NULL, NULL);
//
// The client holds the lock if this statement, with its token, returns 0. (A
// reader has "-R-" in its prefix. It waits for writers only: add AND name LIKE
// '%-W-%'.)
//
//	SELECT count(*) FROM dlock.node WHERE queue = 'stock/42' AND token < 42;
//
// Remove the node. The letter r says that a holder has released an exclusive
// lock. In all other cases it is c:
//
//	CALL dlock.remove('A7', 1, 'stock/42', 42, 'r', NULL);
//
// If an append had no answer, take the next generation, 2 in place of 1, from
// then on, and remove the node that the append may have made or may still make:
//
//	SELECT dlock.cancel('A7', 2, '{A7-1}');
//
// End the session, with all its nodes:
//
//	SELECT dlock.end_session('A7');
//
// The function channel returns the channel of a queue, to LISTEN to. The
// payload of a notice has four lines: "r" if a holder has released an exclusive
// lock and "c" otherwise, the name of the node, the queue, and what the function
// proof returned for the data of a node that was released.
package postgres
