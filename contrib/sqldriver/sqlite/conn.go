package sqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
)

// errUnknownOutcome says that a transaction may or may not have been committed.
var errUnknownOutcome = errors.New("the connection broke during a commit")

// database is a session's connection to the file, which one call uses at a
// time.
type database struct {
	path      string
	connector sqldriver.Connector
	inUse     chan struct{}           // full while a call uses the connection
	writers   atomic.Pointer[writers] // set by newDatabase; only tests change it

	// The fields below are guarded by inUse.
	pool     *sql.DB   // holds only conn; nil while disconnected
	conn     *sql.Conn // nil while disconnected
	stmts    map[string]*sql.Stmt
	connects int64                  // number of connections opened so far
	side     map[string]fs.FileInfo // what sideFiles returned for this connection
}

func fileURI(path string) string {
	path = filepath.ToSlash(path)
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // a Windows path begins with its drive letter
	}
	return (&url.URL{Scheme: "file", OmitHost: true, Path: path}).String()
}

type rows interface{ Scan(dest ...any) error }

// use calls f alone, after reconnecting if necessary. ctx bounds the wait for
// other calls.
func (d *database) use(ctx context.Context, f func() error) error {
	select {
	case d.inUse <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-d.inUse }()
	if err := ctx.Err(); err != nil {
		return err
	}
	if d.conn == nil {
		if err := d.connect(ctx); err != nil {
			d.disconnect()
			return err
		}
	}
	err := f()
	if errors.Is(err, sqldriver.ErrBadConn) || errors.Is(err, sql.ErrConnDone) {
		d.stmts = nil // database/sql has already closed their connection
		d.disconnect()
	}
	return err
}

func (d *database) connect(ctx context.Context) (err error) {
	d.connects++
	d.stmts = make(map[string]*sql.Stmt)
	d.pool = sql.OpenDB(d.connector)
	if d.conn, err = d.pool.Conn(ctx); err != nil {
		return err
	}
	for _, pragma := range []string{"PRAGMA busy_timeout = 0", sqlFlush, sqlUndurable} {
		if !kernelLocks && pragma == sqlUndurable {
			pragma = sqlDurable
		}
		if err := d.exec(ctx, pragma); err != nil {
			return err
		}
	}
	var mode string
	err = d.conn.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode)
	if err == nil && mode != "wal" {
		err = fmt.Errorf("cannot turn on the write-ahead log of the database: its journal mode is %q. "+
			"Is the file or its directory read-only?", mode)
	}
	if err != nil {
		return err
	}
	var tables int // unused: the query opens the side files
	if _, err := d.row(ctx, sqlHasSchema, []any{&tables}); err != nil {
		return err
	}
	d.side, err = sideFiles(d.path)
	return err
}

// sideFiles returns the write-ahead log and its index, which exist while the
// database is open.
func sideFiles(path string) (map[string]fs.FileInfo, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	files := make(map[string]fs.FileInfo)
	for _, suffix := range []string{"-wal", "-shm"} {
		info, err := os.Stat(path + suffix)
		if err != nil {
			return nil, err
		}
		files[path+suffix] = info
	}
	return files, nil
}

// checkSide returns errReplaced if the write-ahead log or its index was
// replaced. Processes with different indexes would not see each other's locks.
func (d *database) checkSide() error {
	for path, file := range d.side {
		if !inPlace(path, file) {
			return fmt.Errorf("%w: %s", errReplaced, path)
		}
	}
	return nil
}

// inPlace returns false if path now leads to another file or to none.
func inPlace(path string, file fs.FileInfo) bool {
	now, err := os.Stat(path)
	return err == nil && os.SameFile(now, file) || err != nil && !errors.Is(err, fs.ErrNotExist)
}

func (d *database) disconnect() {
	for _, s := range d.stmts {
		_ = s.Close()
	}
	if d.conn != nil {
		_ = d.conn.Close()
	}
	if d.pool != nil {
		_ = d.pool.Close()
	}
	d.pool, d.conn, d.stmts = nil, nil, nil
}

func (d *database) close() {
	d.inUse <- struct{}{}
	d.disconnect()
	<-d.inUse
}

func (d *database) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	if s := d.stmts[query]; s != nil {
		return s, nil
	}
	s, err := d.conn.PrepareContext(ctx, query)
	if err == nil {
		d.stmts[query] = s
	}
	return s, err
}

func (d *database) exec(ctx context.Context, query string, args ...any) error {
	s, err := d.stmt(ctx, query)
	if err == nil {
		_, err = s.ExecContext(ctx, args...)
	}
	return err
}

func (d *database) changed(ctx context.Context, query string, args ...any) (int64, error) {
	s, err := d.stmt(ctx, query)
	if err != nil {
		return 0, err
	}
	r, err := s.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

func (d *database) query(ctx context.Context, query string, scan func(rows) error, args ...any) error {
	s, err := d.stmt(ctx, query)
	if err != nil {
		return err
	}
	found, err := s.QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	for err == nil && found.Next() {
		err = scan(found)
	}
	return errors.Join(err, found.Err(), found.Close())
}

func (d *database) row(ctx context.Context, query string, dest []any, args ...any) (found bool, err error) {
	err = d.query(ctx, query, func(r rows) error {
		if found {
			return nil
		}
		found = true
		return r.Scan(dest...)
	}, args...)
	return found, err
}

// read retries f while the database is locked. The context of f never ends,
// which saves goroutines.
func (d *database) read(ctx context.Context, f func(context.Context) error) error {
	return retry(ctx, longestPause, func() error {
		return d.use(ctx, func() error { return f(context.WithoutCancel(ctx)) })
	})
}

// write retries f while the database is locked. Other writers of this process
// wait.
func (d *database) write(ctx context.Context, u urgency, f func() error) error {
	pause := longestPause
	if u == urgent {
		pause = shortestPause
	}
	return retry(ctx, pause, func() error {
		leave, err := d.writers.Load().enter(ctx, u)
		if err != nil {
			return err
		}
		defer leave()
		return d.use(ctx, f)
	})
}

// update runs f in a transaction. ctx bounds only the wait for the write lock,
// so that the outcome is known.
func (d *database) update(ctx context.Context, f func(context.Context) error) error {
	return d.write(ctx, ordinary, func() error { return d.transact(ctx, f) })
}

// beat is like update but goes ahead of other transactions of this process.
func (d *database) beat(ctx context.Context, f func(context.Context) error) error {
	return d.write(ctx, urgent, func() error { return d.transact(ctx, f) })
}

// durably is like update but makes this and all earlier transactions of all
// processes durable.
func (d *database) durably(ctx context.Context, f func(context.Context) error) error {
	return d.write(ctx, ordinary, func() error {
		if err := d.exec(ctx, sqlDurable); err != nil {
			return err
		}
		if kernelLocks {
			defer func() { _ = d.exec(context.WithoutCancel(ctx), sqlUndurable) }()
		}
		return d.transact(ctx, f)
	})
}

func (d *database) transact(ctx context.Context, f func(context.Context) error) error {
	ctx = context.WithoutCancel(ctx)
	if err := d.exec(ctx, sqlBegin); err != nil {
		return err
	}
	if err := f(ctx); err != nil {
		_ = d.exec(ctx, sqlRollback)
		return err
	}
	return d.commit(ctx)
}

// commit ends the transaction. After an error from SQLite itself, nothing was
// committed. After any other error, the outcome is unknown.
func (d *database) commit(ctx context.Context) error {
	err := d.exec(ctx, sqlCommit)
	if err == nil {
		return nil
	}
	if _, known := errorCode(err); known {
		_ = d.exec(ctx, sqlRollback) // fails if SQLite has rolled back by itself
		return err
	}
	return fmt.Errorf("%w: %w", errUnknownOutcome, err)
}
