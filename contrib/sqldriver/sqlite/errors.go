package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// The SQLite result codes that the driver tells apart, see
// https://sqlite.org/rescode.html.
const (
	codeError      = 1
	codePerm       = 3
	codeBusy       = 5
	codeLocked     = 6
	codeReadOnly   = 8
	codeIO         = 10
	codeCorrupt    = 11
	codeFull       = 13
	codeCantOpen   = 14
	codeConstraint = 19
	codeMismatch   = 20
	codeMisuse     = 21
	codeAuth       = 23
	codeNotADB     = 26

	codeShmSize = 10 | 19<<8 // an extended code
)

// adviceOnDamage keeps people from removing a file that holders use.
const adviceOnDamage = "end all programs that use it (fuser or lsof lists them) and try again; " +
	"only if that does not help, and none is running, restore the file or remove it"

func errorCode(err error) (code int, ok bool) {
	var e interface{ Code() int }
	if !errors.As(err, &e) {
		return 0, false
	}
	if e.Code() == codeShmSize { // no space for the -shm file
		return codeFull, true
	}
	return e.Code() & 0xff, true
}

func isBusy(err error) bool {
	code, _ := errorCode(err)
	return code == codeBusy || code == codeLocked
}

// explain makes temporary errors match driver.ErrUnavailable. It adds cause and
// remedy to others.
func explain(err error) error {
	if err == nil || errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrSessionEnded) ||
		errors.Is(err, driver.ErrGone) || errors.Is(err, driver.ErrStale) ||
		errors.Is(err, driver.ErrBadName) || errors.Is(err, errPermanent) ||
		errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	code, _ := errorCode(err)
	switch code {
	case codeIO:
		return fmt.Errorf("%w: a disk error, or the -wal file was removed and a process that stands still has it open: "+
			"end the processes that fuser or lsof lists for the file: %w", driver.ErrUnavailable, err)
	case codeNotADB:
		return fmt.Errorf("%w: the file is no SQLite database: give another path: %w", errPermanent, err)
	case codeCorrupt:
		return fmt.Errorf("%w: the database file is damaged, or its -shm or -wal file was removed while in use: %s: %w",
			errPermanent, adviceOnDamage, err)
	case codeReadOnly, codePerm, codeAuth:
		return fmt.Errorf("%w: the program may not write the database file or its directory: %w", errPermanent, err)
	case codeError, codeConstraint, codeMismatch, codeMisuse:
		return fmt.Errorf("%w: the tables of dlock in the database are not as this program expects: %w",
			errPermanent, err)
	case codeFull:
		return fmt.Errorf("%w: the disk is full: %w", driver.ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

// longestPath is the length of the longest path that SQLite opens on Unix.
const longestPath = 504

// explainOpen marks err as permanent if permissions or a long path cause it.
func explainOpen(path string, err error) error {
	if code, _ := errorCode(err); code != codeCantOpen {
		return err
	}
	if len(path) > longestPath {
		return fmt.Errorf("%w: the path has %d bytes, and SQLite opens paths of up to %d bytes: give a shorter one: %w",
			errPermanent, len(path), longestPath, err)
	}
	for _, p := range []string{filepath.Dir(path), path} {
		if denied := mayWrite(p); denied != nil && !errors.Is(denied, fs.ErrNotExist) {
			return fmt.Errorf("%w: the program may not write the database file or its directory: %w: %w",
				errPermanent, denied, err)
		}
	}
	return err
}

// errPermanent marks an error that would persist after a retry.
var errPermanent = errors.New("cannot use the database")

// Upper bounds of the pauses while the database is locked. Heartbeats use
// shortestPause.
const (
	longestPause  = 3200 * time.Microsecond
	shortestPause = 100 * time.Microsecond
)

func retry(ctx context.Context, longest time.Duration, f func() error) error {
	var busy error
	for try := 0; ; try++ {
		err := f()
		if !isBusy(err) {
			if ended := ctx.Err(); busy != nil && ended != nil && errors.Is(err, ended) {
				err = fmt.Errorf("%w: %w", err, busy) // why the earlier calls failed
			}
			return err
		}
		busy = err
		if ended := pause(ctx, try, longest); ended != nil {
			return fmt.Errorf("%w: %w: %w", driver.ErrUnavailable, ended, err)
		}
	}
}

// pause sleeps for a random time, which grows, so that processes do not collide
// again.
func pause(ctx context.Context, try int, longest time.Duration) error {
	bound := min(50*time.Microsecond<<min(try/2, 6), longest)
	wait := bound/4 + rand.N(bound)
	if wait < time.Millisecond {
		sleep(wait)
		return ctx.Err()
	}
	session.Sleep(ctx, wait)
	return ctx.Err()
}
