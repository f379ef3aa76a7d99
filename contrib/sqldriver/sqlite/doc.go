// Package sqlite keeps dlock's locks in a SQLite file. It is for the processes
// of one machine, and needs no server:
//
//	import _ "github.com/dlock-go/dlock/contrib/sqldriver/sqlite"
//
//	client, err := dlock.Open("sqlite", "")
//
// [NewConnector] keeps the locks in a database that the application has opened.
//
// # Guarantees
//
// The guarantees of docs/use/guarantees.md hold if the store has what it needs:
//
//   - A local file system. SQLite cannot lock on NFS or SMB, nor on a directory
//     that a virtual machine shares with its host. On Linux, Connect refuses
//     these, and all of FUSE, because it cannot tell which of them are local.
//   - Files that stay in their place. If locks.db, locks.db-wal or locks.db-shm
//     is removed or replaced, sessions end with their next heartbeat. Until
//     then the old and the new file both grant locks, or after the removal of
//     locks.db-wal nobody gets one, and tokens may come again. Nor may the
//     directory locks.db-sessions be removed while sessions live.
//   - One name of the file, besides symbolic links. SQLite names the write-ahead
//     log after the file, so a hard link, or a bind mount of the file alone,
//     would damage the file.
//   - A process that leaves the file to SQLite. If the program itself opens and
//     closes the file, for example to copy it, the kernel drops the locks that
//     SQLite holds on it in this process (POSIX locks). A program that writes
//     into one of the files, such as cp, damages the database.
//
// A step of the machine's clock never gives a lock two holders. If the clock
// steps forward by more than half of the session timeout, sessions may end
// early, first in their processes. A step back keeps the locks of a stopped
// process longer, and without flock those of a killed one; not on Linux, where
// deadlines count by the clock of the boot.
//
// Commits do not wait for the disk. A power cut may lose the latest, whose
// sessions have died with the machine, but never damages the file. Tokens still
// rise, because the database reserves them in blocks of 1000, by a commit that
// does wait, so tokens may skip up to 1000. Values wait for the disk as well,
// and on systems without flock each commit does. If the file is replaced by an
// older copy, or the virtual machine is reset to a snapshot, tokens recur; if it
// is removed, they start over.
//
// # Data source names
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
// # Errors
//
// An error matches [driver.ErrUnavailable] if the database is busy, the disk is
// full or fails, or memory is short. Others do not: the directory does not
// exist; the file is no database, is damaged, cannot be written, is on a network
// file system, or has tables of another version; its path is too long.
//
// # Requests
//
// A change is one transaction. A free lock takes two, and so does a hand-over.
// A session that deletes a node wakes its waiters by named pipes; waiters also
// poll, the first every 0.5 to 20 ms, those behind others less often. The
// sessions of a process queue for the write lock of the database, and heartbeats
// go ahead. Between processes that lock is not fair: they try again after random
// times. The queue of a lock is in order.
//
// The kernel unlocks a session's file when its process dies, even by kill -9.
// The first waiter finds this out within about 20 ms, others within 0.2 s. On
// systems without flock, such as Windows, the locks of a killed process are free
// after the session timeout.
//
//   - A process that is stopped in the middle of a transaction (SIGSTOP) blocks
//     all others until it goes on, and their sessions may end.
//   - While a program keeps a read transaction open, SQLite cannot use the
//     write-ahead log again, which grows by about 16 KB with each lock.
//   - A request that hangs in the kernel, for example because a disk hangs, ends
//     when the kernel lets it, and Close waits for it. The lease ends in time.
//
// # Files and permissions
//
// SQLite and the driver also write the files locks.db-wal and locks.db-shm and
// the directory locks.db-sessions. All users that share the file need the right
// to write these and the directory of the file. New files get the mode of the
// database and the group of the directory, so make both for a group of users:
//
//	install -d -m 2770 -g locks /var/lib/dlock
//	install -m 660 -g locks /dev/null /var/lib/dlock/locks.db
//
// If the file is a database of another program, the driver
// adds its tables, and turns on the write-ahead log.
//
// docs/operate/operating.md shows and frees locks with sqlite3. Programs in other
// languages can take part: see docs/contribute/other-languages.md.
package sqlite
