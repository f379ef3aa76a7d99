//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

// Package exampledriver is the driver that docs/contribute/writing-a-driver.md
// builds step by step. It keeps locks for the processes of one machine, in a
// file in a directory:
//
//	dlock.Open("file", "/var/lib/shop/locks?session_timeout=10s")
//
// The directory must exist, on a local file system: flock and rename do not
// work as required on some network file systems. Every request reads the whole
// file, and most write it, so this driver is for dozens of contenders, not for
// thousands.
//
// All processes must read the same clock. If it is set forward, sessions end
// early, which their processes notice, because a lease reads the same clock. If
// it is set back, the nodes of dead processes stay longer by that time.
package exampledriver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

func init() { dlock.Register("file", Driver{}) }

// Driver opens stores that are directories in the file system.
type Driver struct{}

// OpenConnector parses a dsn of the form directory[?session_timeout=10s].
func (Driver) OpenConnector(dsn string) (driver.Connector, error) {
	dir, query, _ := strings.Cut(dsn, "?")
	c := connector{store: store{dir}, timeout: 10 * time.Second}
	params, err := url.ParseQuery(query)
	if err != nil || dir == "" {
		return nil, errors.New("exampledriver: dsn: not of the form directory?session_timeout=10s")
	}
	for name := range params {
		if name != "session_timeout" {
			return nil, fmt.Errorf("exampledriver: dsn: unknown parameter %q", name)
		}
		c.timeout, err = time.ParseDuration(params.Get(name))
		if err != nil || c.timeout < 100*time.Millisecond {
			return nil, fmt.Errorf("exampledriver: dsn: parameter %q is not a duration of at least 100ms", name)
		}
	}
	return c, nil
}

type connector struct {
	store   store
	timeout time.Duration
}

func (c connector) Connect(ctx context.Context) (driver.Session, error) {
	m := c.newMember()
	return c.begin(ctx, m, m)
}

func (c connector) newMember() *member {
	return &member{store: c.store, id: "session-" + rand.Text(), timeout: c.timeout}
}

// begin begins a session through via, which is m or, in a test, wraps m.
func (c connector) begin(ctx context.Context, m *member, via session.Store) (driver.Session, error) {
	s, err := session.Connect(ctx, via, session.Config{Name: "exampledriver", ID: m.id, Timeout: c.timeout,
		Server: func() string { return c.store.dir }, Longest: 5 * time.Millisecond})
	if err != nil {
		_ = os.Remove(m.path(m.id))
		return nil, err
	}
	return s, nil
}
