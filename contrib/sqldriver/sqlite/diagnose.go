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
	"github.com/dlock-go/dlock/driver/diagnose"
)

// Diagnose implements [driver.Diagnoser].
func (c *connector) Diagnose(ctx context.Context, report func(driver.Finding)) error {
	local := "the file of the program's *sql.DB"
	if path, err := c.file(ctx); err == nil {
		local = "the file " + path
	} else if c.path != "" {
		local = "the file " + c.path
	}
	return diagnose.Run(ctx, diagnose.Store{
		Connector: c, Timeout: c.timeout, Local: local, Explain: explainDiagnosis,
		Inspect: func(ctx context.Context, ds driver.Session, report func(driver.Finding)) {
			s := ds.(*session)
			free, known := freeSpace(filepath.Dir(s.db.path))
			for _, f := range inspectFile(s.db.path, free, known) {
				report(f)
			}
			report(s.inspectSequences(ctx))
		},
	}, report)
}

func explainDiagnosis(err error) (check driver.Check, advice string) {
	code, _ := errorCode(err)
	switch {
	case strings.Contains(err.Error(), "other machines may share"):
		return driver.CheckSettings, "move the file to a local disk, and give its new path to all programs"
	case code == codeReadOnly, code == codePerm, code == codeAuth, errors.Is(err, fs.ErrPermission):
		return driver.CheckRights, "let this user write to the file and to its directory"
	case code == codeBusy, code == codeLocked:
		return driver.CheckLogin, "find the program that keeps a write transaction open in this file, such as a shell of sqlite3, and end it"
	case code == codeFull:
		return driver.CheckSettings, "free the disk"
	case errors.Is(err, errPermanent), errors.Is(err, fs.ErrNotExist):
		return driver.CheckLogin, "give the path of another file, or correct this one"
	}
	return "", ""
}

// leastSpace is the free disk space, in bytes, below which a diagnosis warns.
// The locks themselves need far less.
const leastSpace = 16 << 20

// inspectFile checks the database file and its disk. free is the free disk
// space in bytes, valid only if known is true.
func inspectFile(path string, free uint64, known bool) (found []driver.Finding) {
	warn := func(level driver.Level, text, advice string) {
		found = append(found, driver.Finding{Check: driver.CheckSettings, Level: level, Text: text, Advice: advice})
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
		found = []driver.Finding{{Check: driver.CheckSettings, Text: "a local disk; keep the file where it is while it is in use"}}
	}
	return found
}

// mostSequence is the greatest token that fits into a node name.
const mostSequence int64 = 1e18 - 1

func (s *session) inspectSequences(ctx context.Context) driver.Finding {
	f := driver.Finding{Check: driver.CheckSequences}
	var last int64
	err := s.db.read(ctx, func(ctx context.Context) error {
		_, err := s.db.row(ctx, "SELECT reserved FROM dlock_store", []any{&last})
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
