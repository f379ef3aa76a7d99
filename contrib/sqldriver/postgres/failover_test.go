package postgres

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqltest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/internal/history"
	"github.com/dlock-go/dlock/internal/pgtest"
	"github.com/dlock-go/dlock/recipes"
)

var losses = flag.Int("losses", 3, "how often the store loses data under load")

type loss struct {
	*sqltest.Loss
	server *pgtest.Server
}

func opened(t *testing.T, dsn string) *dlock.Client { return sqltest.Open(t, "postgres", dsn) }

func newLoss(t *testing.T, server *pgtest.Server) *loss {
	return &loss{sqltest.NewLoss(t, "postgres", server.Addr(), func(addr string) string { return server.DSNAt(addr, "session_timeout=2s") }), server}
}

func (l *loss) grantsLater(successor *pgtest.Server) {
	l.Helper()
	require.NoError(l, l.GrantsLater(successor.DSN("session_timeout=2s")).Unlock())
}

// lagging starts a standby that has all sessions but receives no later changes.
func (l *loss) lagging(options ...pgtest.Option) *pgtest.Server {
	l.Helper()
	standby := l.server.Standby(l, options...)
	stopReplication(l.T, standby)
	return standby
}

func stopReplication(t *testing.T, standby *pgtest.Server) {
	t.Helper()
	standby.SQL(t, "ALTER SYSTEM SET primary_conninfo = ''")
	standby.SQL(t, "SELECT pg_reload_conf()")
	eventually(t, func() bool { return standby.SQL(t, "SELECT count(*) FROM pg_stat_wal_receiver") == "0" })
}

// The standby's clock may differ from the primary's.
func TestNoTwoHoldersIfALaggingStandbyIsPromoted(t *testing.T) {
	pgtest.RequireClock(t)
	for _, skew := range []time.Duration{0, time.Minute, -time.Minute} {
		t.Run(skew.String(), func(t *testing.T) {
			t.Parallel()
			l := newLoss(t, pgtest.Start(t))
			standby := l.lagging(pgtest.WithClock())
			standby.SetClock(skew)
			l.Hold()
			l.Cut()
			l.server.Kill()
			standby.Promote(t)
			known := standby.SQL(t, "SELECT min(id) FROM dlock.session")
			require.Equal(t, "unknown|||", standby.SQL(t, "CALL dlock.append('"+known+"', 1, 'q', 'a-W-', '', NULL, NULL, NULL, NULL)"))
			l.grantsLater(standby)
		})
	}
}

func TestNoTwoHoldersIfTheSchemaIsLost(t *testing.T) {
	t.Parallel()
	l := newLoss(t, pgtest.Start(t))
	l.Hold()
	l.Cut()
	l.server.SQL(t, "DROP SCHEMA dlock CASCADE")
	l.grantsLater(l.server)
}

// The UPDATE makes the data look as if they came from another server.
func TestASessionInDataOfAnotherEraLearnsOfTheGrace(t *testing.T) {
	server := pgtest.Start(t)
	lock := mustLock(t, opened(t, server.DSN("empty_is_new=true")))
	server.SQL(t, "UPDATE dlock.session SET era = 'old'; UPDATE dlock.era SET name = 'old'")
	<-lock.Lost()
	require.ErrorIs(t, lock.Err(), driver.ErrLostData)
	require.Equal(t, "lost_data", recipes.LostInfo{Err: lock.Err()}.Reason())
}

// The same statements created both servers' tables, so OIDs can't tell the
// servers apart.
func TestNoTwoHoldersIfADumpIsRestored(t *testing.T) {
	t.Parallel()
	l, restored := newLoss(t, pgtest.Start(t)), pgtest.Start(t)
	other := opened(t, restored.DSN("session_timeout=2s"))
	require.NoError(t, mustLock(t, other).Unlock())
	require.NoError(t, other.Close())
	var dump []string
	for _, table := range []string{"dlock.era", "dlock.session"} {
		dump = append(dump, l.server.SQL(t, "SELECT format('INSERT INTO "+table+" SELECT (%L::"+table+").*;', x) FROM "+table+" x"))
	}
	l.Hold()
	l.Cut()
	l.server.Kill()
	restored.SQL(t, "TRUNCATE dlock.era, dlock.session, dlock.node;"+strings.Join(dump, ""))
	l.grantsLater(restored)
}

func TestAGraceCountsAsLongAsItsSession(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	var schema string
	sqltest.Graces(t, Driver{}, func() (func(...string) string, func(string) string) {
		schema = server.Schema()
		return func(params ...string) string { return server.DSN(append(params, "schema="+schema)...) },
			func(query string) string { return server.SQL(t, "SET search_path = "+schema+"; "+query) }
	}, "UPDATE era SET name = 'of another server'", "SELECT extract(epoch FROM rest) FROM era")
}

func TestAClockStepDoesNotEndTheGrace(t *testing.T) {
	pgtest.RequireClock(t)
	t.Parallel()
	l := newLoss(t, pgtest.Start(t, pgtest.WithClock()))
	l.Hold()
	l.Cut()
	l.server.SQL(t, "DROP SCHEMA dlock CASCADE")
	stepped := make(chan struct{})
	go func() {
		defer close(stepped)
		for l.server.SQL(t, "SELECT to_regclass('dlock.era') IS NOT NULL") != "t" || l.server.SQL(t, "SELECT next <> '' FROM dlock.era") != "t" {
			time.Sleep(time.Millisecond)
		}
		l.server.SetClock(time.Minute)
	}()
	l.grantsLater(l.server)
	<-stepped
}

// The old primary answers the holder, but no standby confirms the heartbeats.
func TestNoTwoHoldersIfAPrimaryIsIsolated(t *testing.T) {
	t.Parallel()
	for _, cancelled := range []bool{false, true} {
		t.Run(fmt.Sprintf("cancelled=%v", cancelled), func(t *testing.T) {
			t.Parallel()
			isolatePrimary(t, cancelled)
		})
	}
}

func isolatePrimary(t *testing.T, cancelled bool) {
	l := newLoss(t, pgtest.Start(t))
	standby := l.server.Standby(t)
	l.server.SQL(t, "ALTER SYSTEM SET synchronous_standby_names = '*'")
	l.server.SQL(t, "ALTER SYSTEM SET synchronous_commit = 'local'") // heartbeats still wait for the standby
	l.server.SQL(t, "SELECT pg_reload_conf()")
	require.Eventually(t, func() bool {
		return l.server.SQL(t, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == "1"
	}, time.Minute, 10*time.Millisecond)
	l.Hold()
	stopReplication(t, standby)
	ctx, stop := context.WithCancel(t.Context())
	var operator sync.WaitGroup
	defer operator.Wait()
	defer stop()
	if cancelled {
		db, err := sql.Open("pgx", l.server.DSN())
		require.NoError(t, err)
		defer db.Close()
		operator.Go(func() {
			for session.Sleep(ctx, time.Millisecond) {
				_, _ = db.ExecContext(ctx, "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
			}
		})
	}
	standby.Promote(t)
	l.grantsLater(standby)
}

func TestNoTwoHoldersWhileAStandbyIsPromotedUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for graces")
	}
	t.Parallel()
	primary := pgtest.Start(t)
	dsnAt := func(addr string) string { return primary.DSNAt(addr, "session_timeout=3s") }
	var holders history.Holders
	opened(t, dsnAt(primary.Addr())).Ping(t.Context())
	for i := range *losses {
		standby := primary.Standby(t)
		stop := holders.Load(t, 8, func() (*dlock.Client, error) { return dlock.Open("postgres", dsnAt(primary.Addr()+","+standby.Addr())) })
		holders.Await(t)
		stopReplication(t, standby)
		holders.Await(t)
		holders.CutOff(t, "postgres", primary.Addr(), dsnAt)
		primary.Kill()
		if i%3 == 2 { // a restart loses no data
			primary.Restart()
			holders.Await(t)
			holders.CutOff(t, "postgres", primary.Addr(), dsnAt)
			primary.Kill()
		}
		standby.Promote(t)
		holders.Await(t)
		stop()
		primary = standby
	}
}
