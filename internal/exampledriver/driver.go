//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

// Package exampledriver is the driver that docs/writing-a-driver.md builds up
// step by step. It keeps locks for the processes of one machine, in one file of a directory:
//
//	dlock.Open("file", "/var/lib/shop/locks?session_timeout=10s")
//
// The directory has to exist, on a local file system: flock and rename do not keep on every network
// file system what they promise on a disk. Every request reads the whole file and most write it, so
// that this is for dozens of contenders, not for thousands.
//
// What it takes for granted: all processes read the same clock. A step forward of that clock ends
// sessions, but their leases read it too; a step back keeps what dead processes left for so much longer.
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
)

func init() { dlock.Register("file", Driver{}) }

// Driver opens stores by the names of their directories.
type Driver struct{}

// OpenConnector takes directory[?session_timeout=10s].
func (Driver) OpenConnector(dsn string) (driver.Connector, error) {
	dir, query, _ := strings.Cut(dsn, "?")
	c := connector{store: store{dir}, timeout: 10 * time.Second}
	params, err := url.ParseQuery(query)
	if err != nil || dir == "" {
		return nil, errors.New("exampledriver: dsn: not directory?session_timeout=10s")
	}
	for name := range params {
		if name != "session_timeout" {
			return nil, fmt.Errorf("exampledriver: dsn: parameter %q is not known", name)
		}
		c.timeout, err = time.ParseDuration(params.Get(name))
		if err != nil || c.timeout < 100*time.Millisecond {
			return nil, fmt.Errorf("exampledriver: dsn: parameter %q: not a duration of 100ms or more", name)
		}
	}
	return c, nil
}

type connector struct {
	store   store
	timeout time.Duration
}

func (c connector) Connect(ctx context.Context) (driver.Session, error) {
	s := &session{
		connector: c,
		id:        "session-" + rand.Text(),
		lease:     driver.NewLease(c.timeout, 0),
		watches:   make(map[*watch]bool),
		finished:  make(chan struct{}),
	}
	var err error
	ended := s.lease.Do(func() bool {
		err = s.begin(ctx)
		return err == nil
	})
	if err == nil {
		err = marked(ended) // the store took longer than the lease lasts
	}
	if err != nil {
		_ = os.Remove(c.store.path(s.id)) // the next update then drops the session
		return nil, fmt.Errorf("exampledriver: connect: %w", err)
	}
	go s.run()
	return s, nil
}

// begin makes the session known to the store.
func (s *session) begin(ctx context.Context) error {
	err := os.WriteFile(s.store.path(s.id), nil, 0o600) // its time is the first heartbeat
	if err != nil {
		return marked(err)
	}
	return s.store.update(ctx, func(st *state) error {
		st.Sessions[s.id] = s.timeout
		return nil
	})
}
