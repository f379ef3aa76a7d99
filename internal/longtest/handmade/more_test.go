package handmade

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/pgtest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/testenv"
)

// By default only the operating system detects a lost client, after hours.
func TestForUpdateOutlivesItsMachine(t *testing.T) {
	t.Parallel()
	server := pgtest.Shared(t)
	network, reach := testenv.NewProxy(t, server.Addr(), nil), schema(t, server)
	a := start(t, reach(network.Addr())("for update", 0))
	a.holds()
	network.Cut()
	db := connect(t, reach(server.Addr()))
	for range 10 { // the lock stays held
		_, err := db.ExecContext(t.Context(), "SELECT value FROM item WHERE id = 1 FOR UPDATE NOWAIT")
		require.ErrorContains(t, err, "could not obtain lock")
	}
	require.Equal(t, "0", server.SQL(t, "SELECT reset_val FROM pg_settings WHERE name = 'tcp_keepalives_idle'"), "the operating system decides")
}

// Through pgbouncer, the unlock goes over another connection, so the lock
// outlives its holder.
func TestAnAdvisoryUnlockGoesToAnotherConnection(t *testing.T) {
	t.Parallel()
	on := pgbouncer(2)(t)
	a, b := start(t, on("advisory", 0)), start(t, on("advisory", 0))
	a.holds()
	tx, err := connect(t, on).BeginTx(t.Context(), nil) // occupies the connection on which A has locked
	require.NoError(t, err)
	_, err = tx.ExecContext(t.Context(), "SELECT 1")
	require.NoError(t, err)
	require.ErrorIs(t, a.gives(), errNotHeld)
	require.NoError(t, a.close())
	b.begin() // on the other connection
	require.Eventually(t, func() bool {
		return pgtest.Shared(t).SQL(t, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 42 AND NOT granted") == "1"
	}, bound, 10*time.Millisecond)
	require.NoError(t, tx.Rollback())
}

// The key expires between GET and DEL, so that the next holder's key is
// deleted.
func TestGetThenDel(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := redisAt(server.Addr())("get, del", never)
	a, b, c := start(t, s), start(t, s), start(t, s)
	a.stop = "DEL"
	a.holds()
	unlocked := make(chan error, 1)
	go func() { unlocked <- a.gives() }()
	<-a.at
	server.Do("PEXPIRE", key, "1") // as if the key had expired
	b.holds()
	<-a.at
	require.NoError(t, <-unlocked)
	c.holds()
	require.NoError(t, b.check(), "two holders")
}

// A is cut off while it unlocks, and its watchdog goes on extending the key.
func TestAWatchdogOutlivesTheWork(t *testing.T) {
	t.Parallel()
	const kind = "watchdog until unlocked"
	server := redistest.Start(t)
	proxy := testenv.NewProxy(t, server.Addr(), nil)
	a, b := start(t, redisAt(proxy.Addr())(kind, 6*time.Second)), start(t, redisAt(server.Addr())(kind, never))
	a.holds()
	b.begin()
	proxy.Refuse()
	proxy.DropConnections()
	require.Error(t, a.gives())
	proxy.Heal()
	for range 2 { // the watchdog goes on
		left := server.Do("PTTL", key).(int64)
		require.Eventually(t, func() bool {
			now := server.Do("PTTL", key).(int64)
			left = min(left, now)
			return now > left
		}, bound, 10*time.Millisecond, "the key is not extended")
	}
	require.NoError(t, a.close())
	b.granted()
}
