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
// # The data source name
//
// A DSN has the form that github.com/go-sql-driver/mysql reads, with the
// parameters of that package. It has to name a database, which holds the
// tables. A slash in a parameter is written as %2F. A DSN cannot set variables
// of the server. These parameters are of this package:
//
//	session_timeout  500ms to 1h, 10s if missing: the time for which the database
//	                 keeps a session that it does not hear from
//	grace            how long no lock is granted after a restart or a fail-over,
//	                 session_timeout if missing, and at least that; see Fail-over
//	empty_is_new     true: tables that have had no session need no grace. For
//	                 tests: after a loss of all data, a lock may have two holders
//	max_connections  at least 3, 8 if missing: the connections of a session
//	tls_ca           file of certificates to trust, PEM (the system's)
//	tls_cert         file of the client's certificate, PEM
//	tls_key          file of its key, PEM
//	tls_server_name  the name expected in the server's certificate (the host)
//
// Those that begin with tls_ need tls=true.
//
// # How it works
//
// A session is a row with a generation and a row with a deadline by the
// server's clock, extended by heartbeats. A queue is a row with the last token,
// and a node is a row with a token. Each change is one call of a stored
// procedure: one round trip and one transaction. The procedure locks the
// queue's row before it raises the token, so that commit order is token order.
// A free lock takes two transactions.
//
// The database sends no notices, so a waiter polls its queues, all in one
// statement: first after 2 ms, then at intervals of an eighth of the time since
// the last change, up to 250 ms. So does a holder, to notice that an operator
// has removed its node. Intervals are also at least twice the duration of the
// last poll, to spare a busy server. Each look shows who has released the lock,
// so a hand-over needs no other statement. Polls and heartbeats share one
// connection. Others are closed when they have been idle for a quarter of the
// session timeout.
//
// A poll reads all nodes of its queues, so the load caused by the waiters for
// one lock grows with the square of their number. If hundreds of sessions wait
// for one lock, use a store with notices.
//
// Procedures are the only safe way to make a change in one round trip. With the
// client's parameter multiStatements, an injection into any statement of the
// program could add a second one, and after an error in the middle the
// transaction would stay open. Arguments are hex-encoded, so interpolateParams
// does not matter. A procedure sets its isolation level, and commits or rolls
// back, whatever the settings of the connection are. If the server terminates a
// procedure, as by KILL QUERY or max_statement_time, its transaction stays
// open, so the driver closes the connection after such an error.
//
// # Changes that wait
//
// A session gives up an unanswered request after a quarter of its timeout, or
// after two seconds if that is longer. The server does not notice: it goes on
// waiting for a lock, for example of a transaction that an operator has left
// open, or of a backup, and may then make the change after all. That is
// harmless, because a late append is refused or its node removed, and other
// changes concern the session's own nodes. Meanwhile, though, the request
// occupies a thread of the server, and while an append waits, no session can
// end the one that has sent it. Connections of a DSN therefore lower
// innodb_lock_wait_timeout and lock_wait_timeout to the time after which the
// session gives up. With [NewConnector], the settings of the program's
// connections count, which are 50 seconds and a day by default.
//
// If a process dies while an operator's transaction has locked some of its
// nodes, the process keeps all its locks until then. Its session has a deadline
// in the past: see Tables. Other processes that die lose their locks in time.
//
// While all tables are locked, as by FLUSH TABLES WITH READ LOCK, heartbeats
// wait too. After more than half of the session timeout, sessions may end.
//
// # The rules of package driver
//
//	 1 order         the row of the queue is locked before the token is raised
//	 2 names         the sequence is the token, which no other node of the queue gets
//	 3 tokens        the last token and one, or the server's time in microseconds if
//	                 that is higher; a queue's row that is removed leaves its token,
//	                 and a generation of the data begins above the last one
//	 4 all or none   changes carry a generation; clearing up after a lost reply raises
//	                 it, so that a change that arrives later is refused
//	 5 ahead         a statement after the commit of the append reads the queue
//	 6 watch         arm the watch, look
//	 7 delete        by token, and only nodes of the session
//	 8 session end   driver.Lease; a session is ended by its deadline, compared with
//	                 UTC_TIMESTAMP(6), which each statement of a procedure reads anew
//	 9 close         the session's row is locked, and removed with its nodes
//	10 methods       numbers of errors: see below
//	11 nothing left  a session has its own pool, and closes it
//	12 replace       one update of one row
//	13 released      the row of the queue names the last node that was released; one
//	                 snapshot shows it with the nodes that are left
//
// Errors of the network, of a server that stops or has too many connections, of
// full disks and memory, of a read-only server, and of terminated statements
// match driver.ErrUnavailable. Others, such as a wrong password, do not. After
// a deadlock (error 1213) the store retries, up to seven times. MariaDB does
// not report a full disk of its binary log: it waits until an operator makes
// room, and sessions end meanwhile.
//
// # What the database must be
//
//   - One primary server. Before the first session of a connector, the driver
//     refuses a server that is read-only, whose binary log has the format
//     STATEMENT, that is in a group with several primaries, or that is too old.
//     Neither innodb_flush_log_at_trx_commit nor sync_binlog has to be 1, but
//     the values of Lock.SetValue are as durable as these settings make them.
//   - All clients have the same grace, at least the longest session timeout of
//     any. The driver logs a warning if it meets a longer one.
//   - In a Galera cluster, all clients have to use the same member: members do
//     not share row locks, and another member may show an older state. After a
//     failover to another member, requests that were on their way to the first
//     one may still be carried out. This was not tested, and the driver logs a
//     warning.
//   - Group Replication needs group_replication_single_primary_mode=ON.
//     Certification refuses two changes of one row, but not an append on one
//     primary while another one ends the session of that append: its node would
//     stay for ever. Deadlines would be compared with the clocks of several
//     machines.
//   - The clock of the server must not be set forward. Sessions would end early
//     in the database, and their processes would not know until their next
//     heartbeat. A clock that is set back keeps the nodes of dead processes
//     longer. Tokens rise in either case. Let the time service of the machine
//     slow down or speed up the clock, and not set it.
//   - Each user with rights on the tables may remove the nodes of others. Use a
//     database of its own for locks if you do not trust such users.
//
// # Fail-over
//
// A replica that is promoted may lack the latest changes, also with
// semisynchronous replication, and so may a server that starts again, or a
// restored backup or dump. The driver notices that, and lets nobody have a lock
// until all leases of earlier holders are over. The data belong to a
// generation, which is named by the server, its start, and how often it was
// made a replica since then. So every restart begins another generation, and
// every server that takes over. Each request then ends its session, and Connect
// waits for the grace, which it logs with log/slog. Calls of Lock wait meanwhile.
// The first session ever waits too, because new tables look like lost ones.
//
// Not noticed: a dump that is loaded into a running server that clients use, and
// a virtual machine that is reverted with its memory. After the former, restart
// the server before clients come back.
//
// Tokens rise, except if the clock of the new server is behind that of an
// earlier one by more than the grace, and the data lack what the earlier one
// stored in its last ten seconds or longer, as lost tables do.
//
// A primary that was replaced but still answers its clients goes on to renew
// leases, because nothing confirms them: a lock may then have two holders. Stop
// it, or make it read-only, before another server is promoted.
//
// # Proxies
//
// Each request is one CALL outside of a transaction, so a proxy may pool
// transactions and use a different connection for each statement: a session
// keeps no state in a connection. The proxy must send CALL and SHOW to the
// primary server, even if a procedure only reads.
//
// # Tables
//
// The first session creates the tables and procedures. Several may do that at
// the same time. If the user may not create them, the error of Connect holds
// the statements, with the rights that the user needs. [Statements] returns
// them too. Stored functions and triggers would need more rights, so there are
// none. The file schema.sql is commented. Names and prefixes are bytes, and
// times are microseconds since 1970-01-01 00:00:00 UTC:
//
//	dlock_session  id, generation, era, base, since
//	dlock_lease    session, timeout, deadline
//	dlock_queue    name, last (token), released (node), used (day)
//	dlock_node     queue, name, token, session, created, data
//	dlock_kept     queue, token, value
//	dlock_meta     one, version (1), floor (token), era, grace, base (token), since,
//	               next, rest, seen
//
// When a session begins, and every hour after that, it removes the rows of
// queues not used since the day before yesterday.
//
// A client in another language can take part: it calls the procedures
// dlock_begin, dlock_beat, dlock_append, dlock_look, dlock_remove,
// dlock_cancel, dlock_expire and dlock_end. It has to judge its lease as rule 8
// says. To show a queue:
//
//	SELECT name, session, FROM_UNIXTIME(created / 1000000) AS since
//	FROM dlock_node WHERE queue = 'stock/42' ORDER BY token;
//
// To show the sessions, with the seconds until their deadlines:
//
//	SELECT session, deadline / 1000000 - UNIX_TIMESTAMP(NOW(6)) AS seconds
//	FROM dlock_lease ORDER BY deadline;
//
// Sessions find changes by hand with their next look. To remove a node:
//
//	DELETE FROM dlock_node WHERE queue = 'stock/42' AND name = 'web1-W-0000000007';
//
// To end a session, with all its nodes:
//
//	CALL dlock_end('BFYBXI7DOQ5VTWVDDN4LBFTMXR');
//
// To make a job that runs once per period run again, remove its value:
//
//	DELETE FROM dlock_kept WHERE queue = 'nightly';
//
// A node that another program adds has no token and no session. Its name must
// be one that no node of the queue has had.
package mysql
