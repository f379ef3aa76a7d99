// Package sqlite keeps dlock's locks in a SQLite file. It is for the processes
// of one machine, and needs no server:
//
//	import _ "github.com/dlock-go/dlock/contrib/sqldriver/sqlite"
//
//	client, err := dlock.Open("sqlite", "")
//
// The DSN is the path of the file, which may be followed by a parameter:
//
//	/var/lib/shop/locks.db?session_timeout=10s
//
// The session timeout is between 100ms and 24h, and 10s if it is not given. The
// file is made if it is missing, but its directory has to exist. The path must
// not contain a question mark. With an empty path all programs of a user share
// one file, in a directory that is made with the mode 0700:
//
//	$XDG_STATE_HOME/dlock/locks.db              Linux and other systems
//	~/.local/state/dlock/locks.db               the same, without XDG_STATE_HOME
//	~/Library/Application Support/dlock/locks.db macOS
//	%LocalAppData%\dlock\locks.db               Windows
//
// Programs with different values of XDG_STATE_HOME or HOME, such as a job of
// cron beside a program of a login, use different files: give them a path.
//
// [NewConnector] keeps the locks in a database that the application has opened.
//
// # How it works
//
// A queue is a set of rows. A change is one transaction, started by BEGIN
// IMMEDIATE, so that commit order is queue order. A free lock takes two
// transactions: one inserts the node and lists the nodes ahead, and one deletes
// the node. A hand-over takes two as well, because waiting only reads.
//
// A session that deletes a node wakes its waiters by named pipes. A waiting
// session also polls PRAGMA data_version, every 0.5 to 20 ms: less often the
// longer nothing has changed. One poll serves all its watches.
//
// A session sends heartbeats, which are transactions too, and the database
// drops it when its deadline has passed. The sessions of a process queue for
// the write lock of the database, and heartbeats go ahead. Against other
// processes, heartbeats try again after shorter pauses than other transactions.
// A session also holds a kernel lock (flock) on a file. The kernel unlocks that
// file when the process dies, even by kill -9. A waiter finds this out within
// about 20 ms, and drops the dead session at once. On systems without flock,
// such as Windows, the locks of a killed process are free after the session
// timeout.
//
// # Tokens and power cuts
//
// Commits do not wait for the disk (synchronous=NORMAL). A power cut may lose
// the latest commits, whose sessions have died with the machine, but never
// damages the file. Tokens must not recur, so the database reserves them in
// blocks of 1000, by a commit that does wait for the disk (synchronous=FULL). A
// session that begins while no other is alive skips the rest of the reserved
// block, because the machine may have lost what was issued from it. Each
// session holds a shared kernel lock on a file, which shows a new session
// whether another one is alive. Tokens thus rise, with gaps of up to 1000 when
// the first of several sessions begins. A commit that keeps a value waits for
// the disk as well. On systems without flock each commit does.
//
// If a virtual machine is reset to a snapshot, or the file to an older copy,
// tokens issued since then recur. If the file is removed, tokens start over. A
// restart of the machine removes files in a memory file system.
//
// # How the rules are kept
//
//	 1  order      the number is drawn and committed in one transaction, under the
//	               write lock of the database
//	 2  names      the number ends the name; one counter serves all queues
//	 3  tokens     the token is the number; the counter is kept as above
//	 4  all or     a create is one transaction, which nothing interrupts; if its
//	    nothing    outcome is unknown, the session ends
//	 5  ahead      read in the same transaction
//	 6  watch      compared with a list that is read after it was armed
//	 7  delete     by queue, number and session; no row is ErrGone
//	 8  end        driver.Lease; deadlines by the wall clock of this machine
//	 9  close      deletes the row of the session, and with it the nodes
//	10  methods    package session; errors are explained below
//	11  nothing    package session; Close closes the connection
//	12  replace    one UPDATE of the name
//	13  released   dlock_store.released, written by the transaction of the Delete
//
// # What the store needs
//
//   - A local file system. SQLite cannot lock on NFS or SMB, nor on a directory
//     that a virtual machine shares with its host. On Linux, Connect refuses
//     these, and all of FUSE, because it cannot tell which of them are local.
//   - The directory of the file, which SQLite and the driver write as well: the
//     files locks.db-wal and locks.db-shm, and the directory locks.db-sessions.
//     All users that share the file need the right to write these. The driver
//     gives new files the mode of the database.
//   - Files that stay in their place. If locks.db, locks.db-wal or locks.db-shm
//     is removed or replaced, sessions end with their next heartbeat. Until
//     then the old and the new file both grant locks, and tokens may come
//     again. A program that writes into one of these files, such as cp, damages
//     the database. Nor may the directory of the sessions be removed while
//     sessions live.
//   - A file of its own, or of the application. If the file is a database of
//     another program, the driver adds its tables, and turns on the write-ahead
//     log.
//   - One path of the file. Neither a hard link nor a bind mount of the file
//     alone may give it a second path: SQLite names the write-ahead log after
//     the path. Each path would have a log of its own, and the file would be
//     damaged.
//   - A process that leaves the file to SQLite. If the program itself opens and
//     closes the file, for example to copy it, the kernel drops the locks that
//     SQLite holds on it in this process (POSIX locks).
//
// # What it cannot give
//
//   - More than one machine.
//   - A step of the machine's clock forward, by more than half of the session
//     timeout, may end sessions early: first in their processes, and then in
//     the database. So a lock never has two holders. After a step back,
//     sessions live on and tokens rise. The nodes of a killed process then stay
//     longer on systems where no kernel lock shows its death.
//   - A process that is stopped in the middle of a transaction (SIGSTOP) blocks
//     all others until it goes on. Other sessions may then end, because they
//     cannot send heartbeats.
//   - A program that keeps a read transaction open, or that is stopped while it
//     reads, prevents SQLite from using the write-ahead log again. Until the
//     program goes on, locks.db-wal grows by about 16 KB with each lock.
//   - A request that hangs in the kernel, for example because a disk hangs,
//     ends when the kernel lets it, and Close waits for it. The lease ends in
//     time in any case.
//   - Fairness for the write lock of the database between processes: they try
//     again after random times. The queue of a lock itself is in order.
//
// # Errors
//
// An error matches [driver.ErrUnavailable] if the database is busy, the disk is
// full or fails, or memory is short. Other errors do not match it, and the
// driver does not try again: the directory does not exist, or the file is no
// database, is damaged or cannot be written, or its path is too long. The same
// holds if the file is on a network file system, or has tables of another
// version.
//
// # Layout
//
// The tables below are made with the first session. Programs in other languages
// can take part with the statements below, and sqlite3 can show a queue:
//
//	SELECT seq, name, session FROM dlock_node WHERE queue = 'stock/42' ORDER BY seq
//
// dlock_store has one row:
//
//	id        1
//	schema    the version of the tables, 1
//	last      the last number that was given to a node
//	reserved  numbers up to this one may be given; the disk has this value
//	changes   counts the changes of all nodes; triggers keep it
//	released  queue || '/' || name of the node that was released last, or NULL;
//	          triggers clear it if a node of that name is put again
//
// dlock_session has a row for each session:
//
//	id        26 letters and digits, drawn at random
//	deadline  microseconds since 1970, by the clock of the machine
//
// dlock_node has a row for each node:
//
//	queue     the name of the lock, such as stock/42
//	seq       the number at the end of the name, and the token
//	name      for example web1-W-0000000007
//	session   the session that owns the node; NULL if another program has put it
//	blocker   the seq of the node that the contender waited for first, or NULL
//	data      text of dlock for people
//	created   microseconds since 1970
//
// dlock_kept has a row for each queue beside which a value was set:
//
//	queue     the name of the lock
//	token     of the node that set the value
//	value     what was passed to SetValue
//
// To make a job that runs once per period run again, remove its value:
//
//	DELETE FROM dlock_kept WHERE queue = 'nightly';
//
// A trigger deletes the nodes of a session that is deleted. The directory that
// has the path of the database and "-sessions" contains these files:
//
//	alive     each living session holds a shared flock on it
//	ID        the session ID holds an exclusive flock on it
//	ID.wake   a named pipe; a byte makes the session look at the database
//
// Each change is BEGIN IMMEDIATE, statements, COMMIT:
//
//   - Session: take an exclusive flock on ID. Try an exclusive flock on alive.
//     If that succeeds: PRAGMA synchronous=FULL; UPDATE dlock_store SET last =
//     reserved, reserved = reserved + 1000; then make the flock a shared one.
//     If it fails, take a shared flock. Insert the row of the session.
//   - Heartbeat: set deadline to the present time, read within the transaction,
//     plus the session timeout. If there is no row, the session has ended.
//   - Create: UPDATE dlock_store SET last = last + 1 WHERE last < reserved
//     RETURNING last; check that the row of the session exists; insert the
//     node. If no row is returned, first reserve a block: PRAGMA
//     synchronous=FULL; UPDATE dlock_store SET reserved = last + 1000 WHERE
//     last >= reserved.
//   - Release: delete the node by queue, seq and session. If it was held
//     exclusively, set released. Then write a byte to the pipes of the sessions
//     that wait.
//   - A session may be deleted if its deadline has passed, or if a shared flock
//     on its file ID succeeds. If the file is missing, only the deadline
//     counts.
package sqlite
