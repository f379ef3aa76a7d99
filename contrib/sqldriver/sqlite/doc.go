// Package sqlite keeps dlock's locks in a SQLite file. It is for the processes
// of one machine, and needs no server:
//
//	import _ "github.com/dlock-go/dlock/contrib/sqldriver/sqlite"
//
//	client, err := dlock.Open("sqlite", "/var/lib/shop/locks.db?session_timeout=10s")
//
// [NewConnector] keeps the locks in a database that the application has opened.
//
// docs/stores/sqlite.md says what those who run it need: rights, what damages
// the file, and how to show and free locks. The guarantees of
// docs/use/guarantees.md hold under its conditions. A program must leave the
// file to SQLite: if it opens and closes the file itself, for example to copy
// it, the kernel drops SQLite's locks in this process.
//
// # Data source names
//
// The DSN is the path of the file, which may be followed by session_timeout,
// between 100ms and 24h, by default 10s. The file is made if it is missing, but
// its directory has to exist. The path must not contain a question mark. With
// an empty path all programs of a user share one file, in a directory that is
// made with the mode 0700:
//
//	$XDG_STATE_HOME/dlock/locks.db              Linux and other systems
//	~/.local/state/dlock/locks.db               the same, without XDG_STATE_HOME
//	~/Library/Application Support/dlock/locks.db macOS
//	%LocalAppData%\dlock\locks.db               Windows
//
// Programs with different values of XDG_STATE_HOME or HOME use different files:
// give them a path.
//
// # Errors
//
// An error matches [driver.ErrUnavailable] if the database is busy, the disk is
// full or fails, or memory is short. Others do not: the directory does not
// exist; or the file is no database, is damaged, cannot be written, is on a
// network file system, or has tables of another version.
//
// If a request hangs in the kernel, Lock, Unlock and Close wait for it, but the
// lease ends in time.
//
// # Requests
//
// A change is one transaction. A free lock takes two, and so does a hand-over.
// Waiters are woken by named pipes, and poll. The sessions of a process queue
// for the write lock of the database, and heartbeats go ahead. Between
// processes, that lock is not fair.
//
// Commits wait for the disk only for values, and on systems without flock.
// Tokens are reserved in blocks of 1000, so they skip up to 1000 after a power
// cut.
//
// A step of the machine's clock never gives a lock two holders. Except on
// Linux, a step forward may end sessions early, and a step back keeps the locks
// of a stopped process longer.
//
// For programs in other languages, see docs/contribute/other-languages.md.
package sqlite
