package postgres

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqltest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/histories"
	"github.com/dlock-go/dlock/internal/pgtest"
)

// The tests in this file set the clock of a PostgreSQL server.

// withClock starts a server whose clock can be set.
func withClock(t *testing.T) (server *pgtest.Server, client func(params ...string) *dlock.Client) {
	pgtest.RequireClock(t)
	server = pgtest.Start(t, pgtest.WithClock())
	return server, func(params ...string) *dlock.Client {
		c, err := dlock.Open("postgres", server.DSN(params...))
		require.NoError(t, err)
		t.Cleanup(func() { c.Close() })
		return c
	}
}

func mustLock(t *testing.T, c *dlock.Client) *dlock.Lock {
	t.Helper()
	l, err := c.RWMutex("q").Lock(t.Context())
	require.NoError(t, err)
	return l
}

// Setting the clock back must lose no lock. Tokens must rise, and there must be
// one holder at most.
func TestAStepBackUnderLoad(t *testing.T) {
	server, client := withClock(t)
	var holders histories.Holders
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for range 4 {
		c := client("session_timeout=10s")
		all.Go(func() {
			for ctx.Err() == nil {
				l, err := c.RWMutex("q").Lock(ctx)
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				holders.Work(t, l)
				sqltest.Unlock(t, l)
			}
		})
	}
	for step := range 4 {
		holders.Await(t)
		server.SetClock(-time.Duration(step) * time.Hour)
	}
	holders.Await(t)
	cancel()
	all.Wait()
}

// stepForward sets the clock forward and ends the expired sessions. It repeats
// this until no node is left, because a session that sends a heartbeat after a
// step keeps its nodes.
func stepForward(t *testing.T, server *pgtest.Server, schema string) {
	t.Helper()
	for step := time.Hour; server.SQL(t, "SELECT count(*) FROM "+schema+".node") != "0"; step += time.Hour {
		server.SetClock(step)
		for server.SQL(t, "SELECT "+schema+".expire()") == "t" {
		}
	}
}

// A holder that is cut off cannot learn that the clock step has ended its
// session, so there are two holders. The second holder's token must be higher,
// and a late delete by the first must not remove the second's node.
func TestAStepForwardMakesTwoHolders(t *testing.T) {
	server, _ := withClock(t)
	c := newCaseOn(t, server, "session_timeout=10m")
	var sessions [2]driver.Session
	var places [2]driver.Joined
	join := func(i int) {
		var err error
		if sessions[i], err = c.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { sessions[i].Close() })
		if places[i], err = sessions[i].Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-"}); err != nil {
			t.Fatal(err)
		}
	}
	join(0)
	heal := sessions[0].(*caseSession).network.Cut()
	stepForward(t, server, c.schema)
	join(1)
	assert.Equal(t, 0, len(places[1].Ahead))
	assert.NoError(t, errors.Join(sessions[0].Err(), sessions[1].Err()), "one of the two holders knows of a loss")
	if places[1].Token <= places[0].Token {
		t.Errorf("token %d after %d", places[1].Token, places[0].Token)
	}
	heal()
	for err := driver.ErrUnavailable; errors.Is(err, driver.ErrUnavailable) && t.Context().Err() == nil; {
		if err = sessions[0].Delete(t.Context(), "q", places[0].Place, driver.Released); err == nil {
			t.Error("the delete of the first holder succeeded")
		}
	}
	assert.ErrorIs(t, sessions[0].Err(), driver.ErrSessionEnded)
	assert.NoError(t, sessions[1].Delete(t.Context(), "q", places[1].Place, driver.Released))
}

// A holder that makes no request must learn of the loss by a notice or from its
// next heartbeat.
func TestAHolderLearnsOfAStepForward(t *testing.T) {
	t.Parallel()
	server, client := withClock(t)
	holder := mustLock(t, client("session_timeout=4s"))
	stepForward(t, server, "dlock")
	select {
	case <-holder.Lost():
	case <-time.After(time.Minute):
		t.Fatal("the holder does not learn of its loss")
	}
	server.SetClock(0)
	next := mustLock(t, client())
	assert.Greater(t, next.Token(), holder.Token())
	assert.NoError(t, next.Unlock())
}
