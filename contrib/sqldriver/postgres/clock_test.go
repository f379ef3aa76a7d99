package postgres

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/history"
	"github.com/dlock-go/dlock/internal/pgtest"
	"github.com/dlock-go/dlock/internal/testenv"
)

func withClock(t *testing.T) *pgtest.Server {
	pgtest.RequireClock(t)
	return pgtest.Start(t, pgtest.WithClock())
}

func mustLock(t *testing.T, c *dlock.Client) *dlock.Lock {
	t.Helper()
	l, err := c.RWMutex("q").Lock(t.Context())
	require.NoError(t, err)
	return l
}

// Setting the clock back must neither lose a lock nor make a second holder.
func TestAStepBackUnderLoad(t *testing.T) {
	t.Parallel()
	server := withClock(t)
	var holders history.Holders
	defer holders.Load(t, 4, func() (*dlock.Client, error) { return dlock.Open("postgres", server.DSN("session_timeout=10s")) })()
	for step := range 4 {
		holders.Await(t)
		server.SetClock(-time.Duration(step) * time.Hour)
	}
	holders.Await(t)
}

// stepForward repeats the step until no node is left, because heartbeats renew
// sessions.
func stepForward(t *testing.T, server *pgtest.Server, schema string) {
	t.Helper()
	for step := time.Hour; server.SQL(t, "SELECT count(*) FROM "+schema+".node") != "0"; step += time.Hour {
		server.SetClock(step)
		for server.SQL(t, "SELECT "+schema+".expire()") == "t" {
		}
	}
}

// A disconnected holder can't learn that the clock step has ended its session.
func TestAStepForwardMakesTwoHolders(t *testing.T) {
	server := withClock(t)
	c := newCaseOn(t, server, "session_timeout=10m")
	first := newSession(t, c)
	held := mustCreate(t, first, "1")
	heal := first.Network.Cut()
	stepForward(t, server, c.schema)
	second := newSession(t, c)
	next := mustCreate(t, second, "2")
	assert.Empty(t, next.Ahead)
	assert.NoError(t, errors.Join(first.Err(), second.Err()), "one of the two holders knows of a loss")
	assert.Greater(t, next.Token, held.Token)
	heal()
	var err error
	eventually(t, func() bool {
		err = first.Delete(t.Context(), "q", held.Place, driver.Released)
		return !errors.Is(err, driver.ErrUnavailable)
	})
	assert.Error(t, err, "the delete of the first holder succeeded")
	assert.ErrorIs(t, first.Err(), driver.ErrSessionEnded)
	assert.NoError(t, second.Delete(t.Context(), "q", next.Place, driver.Released))
}

func TestAHolderLearnsOfAStepForward(t *testing.T) {
	t.Parallel()
	server := withClock(t)
	holder := mustLock(t, opened(t, server.DSN("session_timeout=4s")))
	stepForward(t, server, "dlock")
	testenv.Receive(t, holder.Lost(), "the holder learns of its loss")
	server.SetClock(0)
	next := mustLock(t, opened(t, server.DSN()))
	assert.Greater(t, next.Token(), holder.Token())
	assert.NoError(t, next.Unlock())
}
