package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/dlock-go/dlock/driver"
)

// Isolate implements [driver.Isolator] with a new file beside the connector's.
func (c *connector) Isolate(i driver.Isolation) (driver.Connector, func(context.Context) error, error) {
	path, err := c.file(context.Background())
	if err != nil {
		return nil, nil, connectError(err)
	}
	part := &connector{path: path + "-" + i.Name, timeout: c.timeout}
	if i.SessionTimeout > 0 {
		part.timeout = i.SessionTimeout
	}
	return part, func(context.Context) error { return removeDatabase(part.path) }, nil
}

// removeDatabase removes a database file, and what SQLite and this driver keep
// beside it.
func removeDatabase(path string) (err error) {
	for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
		if e := os.Remove(path + suffix); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return errors.Join(err, os.RemoveAll(path+"-sessions"))
}

// Lease returns the session's lease, for the conformance kit.
func (s *session) Lease() *driver.Lease { return s.lease }
