package mysql

import (
	"database/sql"
	"flag"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqltest"
	"github.com/dlock-go/dlock/internal/history"
	"github.com/dlock-go/dlock/internal/mysqltest"
	"github.com/dlock-go/dlock/internal/testenv"
)

var losses = flag.Int("losses", 4, "how often the store loses data under load")

var replicated = mysqltest.WithConfig("log_bin=binlog", "log_slave_updates=ON", "server_id=1")

type loss struct {
	*sqltest.Loss
	server   *mysqltest.Server
	database string
}

func opened(t *testing.T, dsn string) *dlock.Client { return sqltest.Open(t, "mysql", dsn) }

func newLoss(t *testing.T, server *mysqltest.Server, database string) *loss {
	dsn := func(addr string) string { return server.DSNAt(addr, database, "session_timeout=2s") }
	return &loss{sqltest.NewLoss(t, "mysql", server.Addr(), dsn), server, database}
}

func (l *loss) grantsLater(successor *mysqltest.Server) *dlock.Lock {
	l.Helper()
	return l.GrantsLater(successor.DSN(l.database, "session_timeout=2s"))
}

// The replica's clock may differ from the primary's.
func TestNoTwoHoldersIfALaggingReplicaIsPromoted(t *testing.T) {
	mysqltest.RequireClock(t)
	for _, skew := range []time.Duration{0, time.Minute, -time.Minute} {
		t.Run(skew.String(), func(t *testing.T) {
			t.Parallel()
			primary := mysqltest.Start(t, replicated)
			l := newLoss(t, primary, primary.Database())
			replica := primary.Replica(t, mysqltest.WithClock())
			replica.SetClock(skew)
			replica.SQL(t, "", "STOP SLAVE")
			l.Hold()
			l.Cut()
			primary.Kill()
			replica.Promote(t)
			known := replica.SQL(t, l.database, "SELECT MIN(id) FROM dlock_session")
			require.Contains(t, replica.SQL(t, l.database, "CALL dlock_append('"+known+"', 1, 'q', 'a-W-', '')"), "unknown")
			l.grantsLater(replica)
		})
	}
}

// A user with all privileges, such as the holder's, can write to a read-only
// primary.
func TestNoTwoHoldersIfAReadOnlyPrimaryIsReplaced(t *testing.T) {
	t.Parallel()
	primary := mysqltest.Start(t, replicated)
	l := newLoss(t, primary, primary.Database())
	replica := primary.Replica(t)
	replica.SQL(t, "", "STOP SLAVE")
	l.Hold()
	primary.SQL(t, "", "SET GLOBAL read_only = 1")
	replica.Promote(t)
	l.grantsLater(replica)
}

// The promoted server stopped replicating before the lock was taken.
func TestNoTwoHoldersIfAPrimaryIsPromotedAgain(t *testing.T) {
	t.Parallel()
	old := mysqltest.Start(t, replicated)
	database := old.Database()
	require.NoError(t, opened(t, old.DSN(database, "session_timeout=2s")).Ping(t.Context()))
	between := old.Replica(t)
	between.Promote(t)
	old.Follow(t, between)
	old.SQL(t, "", "STOP SLAVE")
	l := newLoss(t, between, database)
	l.Hold()
	l.Cut()
	between.Kill()
	old.Promote(t)
	l.grantsLater(old)
}

func TestNoTwoHoldersAfterARestart(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t, mysqltest.WithConfig("sql_safe_updates=1"))
	l := newLoss(t, server, server.Database())
	l.Hold()
	l.Cut()
	server.Kill()
	server.Restart()
	require.Equal(t, "lost\t0", server.SQL(t, l.database, "CALL dlock_beat((SELECT MIN(id) FROM dlock_session))"))
	l.grantsLater(server)
}

// Calls of UUID_SHORT and a new server_id must not count as a loss of data.
func TestNoLossWithoutARestart(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	l := newLoss(t, server, server.Database())
	l.Hold()
	server.SQL(t, "", "DO BENCHMARK(1 << 24, UUID_SHORT()); SET GLOBAL server_id = 77")
	server.SQL(t, "", "CREATE USER plain@'%' IDENTIFIED BY 'correct-horse'")
	plain, err := sql.Open("mysql", strings.Replace(server.DSN(""), "dlock:", "plain:", 1))
	require.NoError(t, err)
	defer plain.Close()
	_, err = plain.ExecContext(t.Context(), "CHANGE MASTER TO master_host = 'h'")
	require.ErrorContains(t, err, "denied")
	require.NoError(t, opened(t, server.DSN(l.database)).Ping(t.Context()))
	require.Contains(t, server.SQL(t, l.database, "CALL dlock_beat((SELECT MIN(id) FROM dlock_session))"), "ok")
	require.NoError(t, l.Holder.Unlock())
}

func TestNoTwoHoldersIfTheTablesAreLost(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t)
	l := newLoss(t, server, server.Database())
	l.Hold()
	l.Cut()
	server.SQL(t, "", "DROP DATABASE "+l.database+"; CREATE DATABASE "+l.database)
	l.grantsLater(server)
}

// Both servers have the default server_id, so something else must tell them
// apart.
func TestNoTwoHoldersIfADumpIsRestored(t *testing.T) {
	t.Parallel()
	server, restored := mysqltest.Start(t), mysqltest.Start(t)
	l := newLoss(t, server, server.Database())
	dump := server.Dump(t, l.database)
	l.Hold()
	l.Cut()
	server.Kill()
	require.Equal(t, l.database, restored.Database())
	restored.SQL(t, l.database, dump)
	l.grantsLater(restored)
}

func TestAGraceCountsAsLongAsItsSession(t *testing.T) {
	t.Parallel()
	server := mysqltest.Shared(t)
	sqltest.Graces(t, Driver{}, func() (func(...string) string, func(string) string) {
		database := server.Database()
		return func(params ...string) string { return server.DSN(database, params...) },
			func(query string) string { return server.SQL(t, database, query) }
	}, "UPDATE dlock_meta SET era = 'of another server'", "SELECT rest / 1000000 FROM dlock_meta")
}

func TestAClockStepDoesNotEndTheGrace(t *testing.T) {
	mysqltest.RequireClock(t)
	t.Parallel()
	server := mysqltest.Start(t, mysqltest.WithClock())
	l := newLoss(t, server, server.Database())
	l.Hold()
	l.Cut()
	server.Kill()
	server.Restart()
	stepped := make(chan struct{})
	go func() {
		defer close(stepped)
		for server.SQL(t, l.database, "SELECT rest > 0 FROM dlock_meta") != "1" {
			time.Sleep(time.Millisecond)
		}
		server.SetClock(time.Minute)
	}()
	l.grantsLater(server)
	<-stepped
}

func TestNoTwoHoldersWhileTheStoreLosesDataUnderLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for graces")
	}
	t.Parallel()
	primary := mysqltest.Start(t, replicated)
	database := primary.Database()
	proxy := testenv.NewProxy(t, primary.Addr(), nil)
	dsnAt := func(addr string) string { return primary.DSNAt(addr, database, "session_timeout=3s") }
	require.NoError(t, opened(t, dsnAt(proxy.Addr())).Ping(t.Context()))
	var holders history.Holders
	defer holders.Load(t, 8, func() (*dlock.Client, error) { return dlock.Open("mysql", dsnAt(proxy.Addr())) })()
	hold := func() { holders.CutOff(t, "mysql", primary.Addr(), dsnAt) }
	for i := range *losses {
		holders.Await(t)
		kind := (i + rand.N(2)) % 3
		if kind == 0 {
			hold()
			primary.Kill()
			primary.Restart()
			continue
		}
		replica := primary.Replica(t)
		replica.SQL(t, "", "STOP SLAVE")
		holders.Await(t)
		hold()
		if kind == 1 {
			primary.Kill()
		}
		move := func(to *mysqltest.Server) {
			proxy.Retarget(to.Addr())
			proxy.DropConnections()
			to.Promote(t)
		}
		move(replica)
		if kind == 1 {
			primary = replica
			continue
		}
		primary.SQL(t, "", "CHANGE MASTER TO master_host='127.0.0.1'")
		holders.Await(t)
		move(primary)
		replica.Kill()
	}
	holders.Await(t)
}
