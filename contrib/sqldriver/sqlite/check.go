package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

var _ driver.Checker = (*connector)(nil)

func (c *connector) Check(ctx context.Context) ([]driver.Finding, error) {
	return session.Check(ctx, c, adviceOn, func(st session.Store) []driver.Finding {
		m := st.(*member)
		free, known := freeSpace(filepath.Dir(m.db.path))
		return append(checkFile(m.db.path, free, known), m.checkSequences(ctx))
	})
}

func adviceOn(err error) string {
	if err == nil {
		return ""
	}
	code, _ := errorCode(err)
	switch {
	case strings.Contains(err.Error(), "other machines may share"):
		return "move the file to a local disk, and give its new path to all programs"
	case code == codeReadOnly, code == codePerm, code == codeAuth, errors.Is(err, fs.ErrPermission):
		return "let this user write to the file and to its directory"
	case code == codeBusy, code == codeLocked:
		return "find the program that keeps a write transaction open in this file, such as a shell of sqlite3, and end it"
	case code == codeFull:
		return "free the disk"
	case code == codeCorrupt:
		return adviceOnDamage
	case errors.Is(err, errPermanent), errors.Is(err, fs.ErrNotExist):
		return "give the path of another file, or correct this one"
	}
	return ""
}

// leastSpace is the free disk space below which Check warns. The locks need far
// less.
const leastSpace = 16 << 20

func checkFile(path string, free uint64, known bool) (found []driver.Finding) {
	warn := func(level driver.Level, text, advice string) {
		found = append(found, driver.Finding{Level: level, Text: text, Advice: advice})
	}
	if known && free < leastSpace {
		warn(driver.Warning, fmt.Sprintf("the disk of %s has %d bytes left: when it is full, no client gets a lock", path, free), "free the disk")
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		warn(driver.Unknown, err.Error(), "make sure that nobody moves or removes the file while it is in use")
	case info.Mode().Perm()&0o002 != 0:
		warn(driver.Warning, path+" may be written by every user of this machine, who can take and remove locks", "chmod o-w "+path)
	}
	if len(found) == 0 {
		found = []driver.Finding{{Text: "a local disk; keep the file where it is while it is in use"}}
	}
	return found
}

// mostSequence is the greatest token that fits into a node name.
const mostSequence int64 = 1e18 - 1

func (m *member) checkSequences(ctx context.Context) (f driver.Finding) {
	var last int64
	err := m.db.read(ctx, func(ctx context.Context) error {
		_, err := m.db.row(ctx, "SELECT reserved FROM dlock_store", []any{&last})
		return err
	})
	switch {
	case err != nil:
		f.Level, f.Text, f.Advice = driver.Unknown, err.Error(), "try again when the file is less busy"
	case last > mostSequence-mostSequence/10:
		f.Level, f.Text = driver.Warning, fmt.Sprintf("the file has used sequences up to %d of %d", last, mostSequence)
		f.Advice = "use another file for all clients"
	default:
		f.Text = fmt.Sprintf("room for %d more nodes", mostSequence-last)
	}
	return f
}
