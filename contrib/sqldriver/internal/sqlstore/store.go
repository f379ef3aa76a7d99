// Package sqlstore holds what the drivers for database servers have in common:
// connections, errors, and the generation of a session. The SQLite driver does
// not use it, because no network loses the replies of its database.
package sqlstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// Store is what a driver implements to use this package.
type Store interface {
	session.Store
	session.Expirer
	session.Reader
	session.Tidier
	session.Starter
	// Open connects. If the tables are missing, it creates them, unless the
	// session only observes.
	Open(ctx context.Context) error
	// Close closes the connections. Later requests open them again.
	Close()
	// These are implemented by [Pool].
	Enough() error
	Slots() (n int, more string)
	Admit(ctx context.Context) error
	Observes() bool
}

// Connect opens st and begins a session that sends its requests to the store
// via, which is st itself except in tests. If Connect fails, it closes st.
func Connect(ctx context.Context, st Store, via session.Store, c session.Config) (*session.Session, error) {
	c.Requests, c.Busy = st.Slots()
	err := st.Enough()
	if err == nil {
		err = st.Open(ctx)
	}
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil { // the driver's time limit, not the caller's
		err = fmt.Errorf("%w: %s", driver.ErrUnavailable, strings.TrimPrefix(err.Error(), driver.ErrUnavailable.Error()+": "))
	}
	if err != nil {
		st.Close()
		return nil, fmt.Errorf("%s: connect: %w", c.Name, err)
	}
	var s *session.Session
	if st.Observes() {
		s, err = session.Observe(ctx, st, st.Close, c)
	} else {
		s, err = session.Connect(ctx, via, c)
	}
	if err != nil {
		st.Close()
	}
	return s, err
}

// Limit returns the time limit for a request, which package session sets for
// most requests. The drivers set it for Walk and for lock waits in the server.
func Limit(timeout time.Duration) time.Duration { return max(timeout/4, 2*time.Second) }

// ConnectLimit returns the timeout for opening a connection. database/sql opens
// some connections without a caller's context. Without a timeout, each of them
// could occupy a slot of the pool forever.
func ConnectLimit(timeout time.Duration) time.Duration { return max(timeout/2, 5*time.Second) }

// Generation is the number that each change of a session carries. The database
// refuses a change whose number is lower than that of the latest Cancel, so
// that no cancelled change takes effect late.
type Generation struct{ raised atomic.Int64 }

// Send calls the function send with the generation. It repeats the call if the
// database refused the change after a concurrent Cancel raised the generation.
func (g *Generation) Send(send func(generation int64) error) error {
	for {
		raised := g.raised.Load()
		err := send(1 + raised)
		if !errors.Is(err, errStale) {
			return err
		}
		if g.raised.Load() == raised {
			return session.Refused(fmt.Errorf("another program has raised the generation of the session: %w", err))
		}
	}
}

// Raise raises the generation for a Cancel, and returns it.
func (g *Generation) Raise() int64 { return 1 + g.raised.Add(1) }
