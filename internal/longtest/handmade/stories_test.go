package handmade

import (
	"database/sql"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/pgtest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/testenv"
)

// Expiries of hand-written locks (soon, never), and session timeouts of dlock.
const (
	soon  = 500 * time.Millisecond
	never = time.Hour
	short = 4 * time.Second  // for sessions whose end a test awaits
	long  = 10 * time.Second // for sessions that must survive a busy machine
)

// A store makes the setting for a kind of lock on a test's servers.
type store func(kind string, expiry time.Duration) setting

func on(dlock string, hand ...string) store {
	return func(kind string, expiry time.Duration) setting {
		if kind == "dlock" {
			return setting{kind: kind, servers: []string{dlock}, expiry: expiry}
		}
		return setting{kind: kind, servers: hand, expiry: expiry}
	}
}

const tables = `CREATE TABLE held (name varchar(99) PRIMARY KEY, expires bigint NOT NULL);
	CREATE TABLE item (id int PRIMARY KEY, value int NOT NULL); INSERT INTO item VALUES (1, 1)`

func connect(t testing.TB, s store) *sql.DB {
	driver, dsn, _ := strings.Cut(s("row", 0).servers[0], " ")
	db, err := sql.Open(driver, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func schema(t testing.TB, server *pgtest.Server) func(addr string, parameters ...string) store {
	name := server.Schema()
	server.SQL(t, "CREATE SCHEMA "+name+"; SET search_path = "+name+"; "+tables)
	return func(addr string, parameters ...string) store {
		return on("postgres "+server.DSNAt(addr, append(parameters, "schema="+name)...)+"&",
			"pgx "+server.DSNAt(addr, append(parameters, "search_path="+name)...))
	}
}

func postgres(t testing.TB) store {
	server := pgtest.Shared(t)
	return schema(t, server)(server.Addr())
}

// pgbouncer returns a store behind PgBouncer, which limits the connections.
func pgbouncer(connections int) func(testing.TB) store {
	return func(t testing.TB) store {
		server := pgtest.Shared(t)
		dsn := server.DSNAt(server.Pgbouncer(t, connections), "default_query_exec_mode=exec") // for versions of PgBouncer without prepared statements
		return on("postgres "+dsn+"&empty_is_new=true&schema="+server.Schema()+"&", "pgx "+dsn)
	}
}

func sqlite(t testing.TB) store {
	s := on("", "sqlite "+filepath.Join(t.TempDir(), "hand.db")+"?_pragma=journal_mode(WAL)&_pragma=busy_timeout(60000)")
	_, err := connect(t, s).ExecContext(t.Context(), tables)
	require.NoError(t, err)
	return s
}

func onRedis(t testing.TB) store { return redisAt(redistest.Start(t).Addr()) }

func redisAt(addrs ...string) store {
	return on("redis redis://"+addrs[0]+"?empty_is_new=true&", addrs...)
}

// masters returns n Redis servers that lose all data in a restart.
func masters(t testing.TB, n int) (servers []*redistest.Server, addrs []string) {
	redistest.RequireClock(t)
	for range n {
		s := redistest.Start(t, redistest.WithClock())
		servers, addrs = append(servers, s), append(addrs, s.Addr())
	}
	return servers, addrs
}

func five(t testing.TB) store {
	_, addrs := masters(t, 5)
	return redisAt(addrs...)
}

// A lock without an expiry stays, even if its holder was about to set one.
func TestADeadHolder(t *testing.T) {
	for kind, on := range map[string]func(testing.TB) store{
		"row": postgres, "row in SQLite": sqlite, "setnx": onRedis, "setnx, expire": onRedis,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			kind, _, _ := strings.Cut(kind, " in ")
			expiry := never
			if kind == "setnx, expire" {
				expiry = soon
			}
			s := on(t)(kind, expiry)
			a, b := start(t, s), start(t, s)
			a.stop, b.stop = "EXPIRE", "retry"
			a.begin()
			if kind == "setnx, expire" {
				<-a.at
			} else {
				a.granted()
			}
			require.NoError(t, a.close())
			b.begin()
			for range 10 { // B retries in vain
				<-b.at
				<-b.at
			}
		})
	}
}

// A pauses after a check of its lock, for longer than the lock lasts.
func TestAPausedHolder(t *testing.T) {
	for kind, c := range map[string]struct {
		on       func(testing.TB) store
		thirdOne bool // A's unlock lets C in beside B
	}{
		"row": {postgres, true}, "row in SQLite": {sqlite, true}, "setnx, expire": {onRedis, true}, "set nx px": {onRedis, true},
		"get, del": {onRedis, false}, // harmless here; see TestGetThenDel
		"script":   {onRedis, false}, "watchdog": {onRedis, false}, "redlock": {five, false},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			kind, _, _ := strings.Cut(kind, " in ")
			s := c.on(t)
			a, b, third := start(t, s(kind, 6*soon)), start(t, s(kind, never)), start(t, s(kind, never))
			a.stop = "extension" // the watchdog is paused as well
			var r resource
			a.holds()
			require.NoError(t, a.check())
			b.holds()
			require.True(t, r.write(b))
			require.True(t, r.write(a), "the late write")
			_ = a.gives() // some locks report the loss here
			require.Equal(t, c.thirdOne, !third.waits())
			require.NoError(t, b.check())
		})
	}
}

// TestAWaiterIsOvertaken lets A unlock and C get the lock while B sleeps between
// two tries.
func TestAWaiterIsOvertaken(t *testing.T) {
	for kind, on := range map[string]func(testing.TB) store{"row": postgres, "row in SQLite": sqlite, "setnx": onRedis, "watchdog": onRedis} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			kind, _, _ := strings.Cut(kind, " ")
			s := on(t)(kind, never)
			a, b, c := start(t, s), start(t, s), start(t, s)
			b.stop = "retry"
			a.holds()
			b.begin()
			<-b.at
			require.NoError(t, a.gives())
			c.holds()
			<-b.at
			<-b.at
		})
	}
}

// An ending says what happens to A's lock when B wants it, too.
type ending int

const (
	kept        ending = iota // A keeps the lock, and B waits
	told                      // A is told, and its write refused
	overwritten               // two holders, and A's late write succeeds
)

// A scene prepares the stores. Its event is called while A holds the lock.
type scene func(t testing.TB) (a, b store, event func(a *contender))

func TestTwoHolders(t *testing.T) {
	for _, c := range []struct {
		name, kind string
		scene
		a, b time.Duration // expiry, or session timeout
		end  ending
	}{
		{"long work", "row", quietly(postgres), soon, never, overwritten},
		{"long work in SQLite", "row", quietly(sqlite), soon, never, overwritten},
		{"long work", "set nx px", quietly(onRedis), soon, never, overwritten},
		{"long work", "script", quietly(onRedis), soon, never, overwritten},
		{"a clock that is ahead", "row", clockAhead, time.Hour, time.Hour, overwritten},
		{"an operator ends the connection", "for update", terminated, 0, 0, overwritten},
		{"an operator ends the connection", "dlock", terminated, time.Minute, time.Minute, kept},
		{"a limit of the server ends the connection", "for update", quietly(idle), 0, 0, overwritten},
		{"the network is cut", "for update", cutOff, 0, 0, overwritten},
		{"the network is cut", "dlock", cutOff, short, short, told},
		{"one connection for two", "advisory", quietly(pgbouncer(1)), 0, 0, overwritten},
		{"one connection for two", "dlock", quietly(pgbouncer(1)), long, long, kept},
		{"the server crashes", "advisory", crash, 0, 0, overwritten},
		{"the server crashes", "dlock", crash, time.Minute, time.Minute, kept},
		// For dlock, see the tests of fail-overs in contrib/redisdriver.
		{"a replica without the key is promoted", "watchdog", promotion, never, never, overwritten},
		{"the master forgets", "dlock", forgets, short, short, told},
		{"the third of five forgets", "redlock", twoMajorities(restart), never, never, overwritten},
		{"the clock of the third of five jumps", "redlock", twoMajorities(jump), never, never, overwritten},
	} {
		t.Run(c.kind+"/"+c.name, func(t *testing.T) {
			t.Parallel()
			onA, onB, event := c.scene(t)
			a, b := start(t, onA(c.kind, c.a)), start(t, onB(c.kind, c.b))
			var r resource
			a.holds()
			event(a)
			if c.end == kept {
				require.True(t, b.waits(), "two holders")
				require.NoError(t, a.check())
				require.Eventually(t, func() bool { return a.gives() == nil }, bound, 10*time.Millisecond) // the first calls may find broken connections
				b.granted()
			} else {
				b.holds()
				require.Equal(t, c.end == told, a.check() != nil)
			}
			require.True(t, r.write(b))
			require.Equal(t, c.end == overwritten, r.write(a))
		})
	}
}

func nothing(*contender) {}

// quietly returns a scene in which A and B share a store, and nothing happens.
func quietly(on func(testing.TB) store) scene {
	return func(t testing.TB) (a, b store, _ func(*contender)) {
		a = on(t)
		return a, a, nothing
	}
}

func clockAhead(t testing.TB) (a, b store, _ func(*contender)) {
	a = postgres(t)
	return a, func(kind string, expiry time.Duration) setting {
		s := a(kind, expiry)
		s.ahead = 2 * time.Hour
		return s
	}, nothing
}

func terminated(t testing.TB) (a, b store, _ func(*contender)) {
	server := pgtest.Shared(t)
	name, reach := server.Schema(), schema(t, server)
	return reach(server.Addr(), "application_name="+name), reach(server.Addr()), func(*contender) {
		server.SQL(t, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '"+name+"'")
	}
}

const idleLimit = "options=-c%20idle_in_transaction_session_timeout%3D1s"

func idle(t testing.TB) store {
	server := pgtest.Shared(t)
	return schema(t, server)(server.Addr(), idleLimit)
}

func cutOff(t testing.TB) (a, b store, _ func(*contender)) {
	server := pgtest.Shared(t)
	network, reach := testenv.NewProxy(t, server.Addr(), nil), schema(t, server)
	return reach(network.Addr(), idleLimit), reach(server.Addr(), idleLimit), func(*contender) { network.Cut() }
}

func crash(t testing.TB) (a, b store, _ func(*contender)) {
	server := pgtest.Start(t)
	a = schema(t, server)(server.Addr())
	return a, a, func(*contender) {
		server.Kill()
		server.Restart()
	}
}

// promotion promotes a replica that has lagged since before A took the lock.
func promotion(t testing.TB) (a, b store, _ func(*contender)) {
	master, replica := redistest.Start(t), redistest.Start(t)
	replication := testenv.NewProxy(t, master.Addr(), nil)
	replica.Do("REPLICAOF", "127.0.0.1", replication.Port())
	require.Eventually(t, func() bool {
		role, _ := replica.Do("ROLE").([]any)
		return len(role) > 3 && role[3] == "connected"
	}, bound, 5*time.Millisecond)
	replication.Cut()
	return redisAt(master.Addr()), redisAt(replica.Addr()), func(*contender) {
		master.Kill()
		replica.Do("REPLICAOF", "NO", "ONE")
	}
}

func restart(s *redistest.Server) {
	s.Kill()
	s.Restart()
}

func jump(s *redistest.Server) { s.SetClock(2 * never) }

func forgets(t testing.TB) (a, b store, _ func(*contender)) {
	server := redistest.Start(t)
	a = on("redis redis://" + server.Addr() + "?")
	return a, a, func(*contender) { restart(server) }
}

// twoMajorities lets A lock three of five servers, one of which forgets the
// lock.
func twoMajorities(forget func(*redistest.Server)) scene {
	return func(t testing.TB) (a, b store, _ func(*contender)) {
		servers, addrs := masters(t, 5)
		reached := slices.Clone(addrs)
		for i := 3; i < 5; i++ {
			network := testenv.NewProxy(t, addrs[i], nil)
			network.Cut()
			reached[i] = network.Addr()
		}
		a = redisAt(reached...)
		return a, redisAt(addrs...), func(*contender) { forget(servers[2]) }
	}
}
