package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	modernc "modernc.org/sqlite"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/dsn"
	"github.com/dlock-go/dlock/driver/session"
)

func init() { dlock.Register("sqlite", Driver{}) }

// Driver implements [driver.Driver] for SQLite. It is registered as "sqlite".
type Driver struct{}

const (
	defaultTimeout = 10 * time.Second
	minTimeout     = 100 * time.Millisecond
	maxTimeout     = 24 * time.Hour
)

// OpenConnector parses a data source name, described in the package
// documentation. It does no I/O. A path may be relative.
func (Driver) OpenConnector(text string) (driver.Connector, error) {
	path, query, _ := strings.Cut(text, "?")
	c := &connector{path: path, timeout: defaultTimeout}
	switch {
	case strings.HasPrefix(path, "file:"):
		return nil, errors.New("sqlite: dsn: give the path of the file without the prefix \"file:\"")
	case strings.Contains(path, "://"): // errors would repeat a password in the URL
		return nil, errors.New("sqlite: dsn: give the path of a file in place of a URL")
	case strings.Contains(path, ":memory:"):
		return nil, errors.New("sqlite: dsn: a database in memory has no other sessions: " +
			"give the path of a file, or use package memdriver")
	}
	err := dsn.Check(path)
	if err != nil {
		return nil, fmt.Errorf("sqlite: dsn: the path has %w", err)
	}
	if c.path, err = absolute(path); err != nil {
		return nil, fmt.Errorf("sqlite: dsn: the relative path: %w", err)
	}
	if err := (dsn.Parameters{"session_timeout": timeoutIn(&c.timeout)}).Parse(query); err != nil {
		return nil, fmt.Errorf("sqlite: dsn: %w", err)
	}
	return c, nil
}

// absolute makes path absolute. It keeps "..", because link/.. is the parent of
// the link's target.
func absolute(path string) (string, error) {
	switch {
	case path == "" || runtime.GOOS != "windows" && filepath.IsAbs(path):
		return path, nil
	case runtime.GOOS == "windows": // Windows resolves .. before symbolic links
		return filepath.Abs(path)
	}
	dir, err := os.Getwd()
	return dir + "/" + path, err
}

func timeoutIn(to *time.Duration) func(string) error { return dsn.Duration(to, minTimeout, maxTimeout) }

// NewConnector returns a connector that keeps its locks in the database file
// opened by db, next to the application's tables. A zero sessionTimeout means
// ten seconds. NewConnector does no I/O.
//
// The driver of db must be that of modernc.org/sqlite, because two copies of
// SQLite in one process would break each other's file locks. NewConnector
// returns an error for any other driver.
//
// Each Connect asks db for the path of the file and then opens its own
// connection. Sessions turn on the file's write-ahead log, and change no other
// setting.
//
// The application must not use PRAGMA synchronous=OFF, because a power cut
// would then damage the file. Its write transactions must be much shorter than
// the session timeout: while one is open, no session can take or release a
// lock, or renew its lease.
func NewConnector(db *sql.DB, sessionTimeout time.Duration) (driver.Connector, error) {
	if _, ok := db.Driver().(*modernc.Driver); !ok {
		return nil, fmt.Errorf("sqlite: the driver %T of the sql.DB is not that of modernc.org/sqlite: "+
			"two copies of SQLite in one process would damage the file", db.Driver())
	}
	c := &connector{db: db}
	if err := timeoutIn(&c.timeout)(cmp.Or(sessionTimeout, defaultTimeout).String()); err != nil {
		return nil, fmt.Errorf("sqlite: the session timeout: %w", err)
	}
	return c, nil
}

type connector struct {
	path    string  // absolute; empty for the default file
	db      *sql.DB // nil if the path is given
	timeout time.Duration
}

// file returns the database's path without symbolic links. It creates the
// default file's directory.
func (c *connector) file(ctx context.Context) (path string, err error) {
	switch {
	case c.db != nil:
		path, err = fileOf(ctx, c.db)
	case c.path == "":
		path, err = defaultFile()
	default:
		path = c.path
	}
	if err != nil {
		return "", err
	}
	dir, name := filepath.Split(path)
	if resolved, err := filepath.EvalSymlinks(path); err == nil {
		path, dir = resolved, filepath.Dir(resolved)
	} else if resolved, err := filepath.EvalSymlinks(dir); err == nil {
		path, dir = filepath.Join(resolved, name), resolved
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return "", fmt.Errorf("%w: %s is a directory: give the path of a file in it", errPermanent, path)
	} else if err == nil && !info.Mode().IsRegular() {
		return "", fmt.Errorf("%w: %s is a device, a pipe or a socket: give the path of a file", errPermanent, path)
	} else if denied := mayWrite(path); err == nil && denied != nil {
		// Opening it would create a write-ahead log that other users can't write.
		return "", fmt.Errorf("%w: the program may not write the database file: %w", errPermanent, denied)
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("%w: the directory %s does not exist: make it", errPermanent, dir)
	case err == nil && !info.IsDir(), errors.Is(err, syscall.ENOTDIR):
		return "", fmt.Errorf("%w: %s is not a directory", errPermanent, dir)
	case err != nil:
		return "", err
	}
	if network := networkFileSystem(dir); network != "" {
		return "", fmt.Errorf("%w: %s is on a file system (%s) that other machines may share, where SQLite cannot lock: "+
			"use a local disk, or another driver", errPermanent, path, network)
	}
	return path, nil
}

func fileOf(ctx context.Context, db *sql.DB) (string, error) {
	var path string
	err := db.QueryRowContext(ctx, "SELECT file FROM pragma_database_list WHERE name = 'main'").Scan(&path)
	if err != nil {
		return "", fmt.Errorf("ask for the path of the database file: %w", err)
	}
	if path == "" {
		return "", fmt.Errorf("%w: the sql.DB is a database in memory, which has no other sessions", errPermanent)
	}
	return path, nil
}

func (c *connector) Connect(ctx context.Context) (driver.Session, error) {
	path, err := c.file(ctx)
	if err != nil {
		return nil, connectError(err)
	}
	base, err := modernc.NewConnector(fileURI(path))
	if err != nil {
		return nil, connectError(err)
	}
	return c.begin(ctx, path, base)
}

// Observe implements [driver.Observer]. It is like Connect, except that it does
// not create a missing file: such a file has no locks to show.
func (c *connector) Observe(ctx context.Context) (driver.Session, error) {
	path, err := c.file(ctx)
	if e := (unmade{path: path}); err == nil && e.check() == nil {
		return session.Observe(ctx, e, func() {}, session.Config{Name: "sqlite", Timeout: c.timeout, Server: func() string { return path }})
	}
	return c.Connect(ctx)
}

// unmade is the store of a session that observes a file that doesn't exist.
type unmade struct {
	session.Store
	path string
}

// check returns an error, which ends the session, once the file exists.
func (u unmade) check() error {
	if _, err := os.Stat(u.path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("%w: the file exists", driver.ErrSessionEnded)
}

func (u unmade) Look(_ context.Context, ask []session.Query) ([]session.Snapshot, error) {
	return make([]session.Snapshot, len(ask)), u.check()
}

func (u unmade) Walk(context.Context, string) ([]string, error) { return nil, u.check() }

func connectError(err error) error { return fmt.Errorf("sqlite: connect: %w", explain(err)) }

func (c *connector) begin(ctx context.Context, path string, base sqldriver.Connector) (driver.Session, error) {
	db := &database{path: path, connector: base, inUse: make(chan struct{}, 1)}
	db.writers.Store(writersOf(path))
	m := &member{path: path, timeout: c.timeout, db: db, heads: make(map[string]head)}
	s, err := m.connect(ctx)
	if err != nil {
		m.db.close()
		if m.presence != nil {
			m.presence.leave()
		}
		return nil, err
	}
	return s, nil
}

func (m *member) connect(ctx context.Context) (*session.Session, error) {
	if err := m.open(ctx); err != nil {
		return nil, connectError(fmt.Errorf("%s: %w", m.path, explainOpen(m.path, err)))
	}
	return session.Connect(ctx, m, session.Config{Name: "sqlite", ID: m.presence.id, Timeout: m.timeout,
		Server: func() string { return m.path }, Shortest: shortest, Longest: longest})
}
