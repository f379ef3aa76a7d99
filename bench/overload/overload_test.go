// Package overload_test measures how locks recover from an overload.
package overload_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/contrib/etcddriver"
	_ "github.com/dlock-go/dlock/contrib/redisdriver"
	_ "github.com/dlock-go/dlock/contrib/sqldriver/mysql"
	_ "github.com/dlock-go/dlock/contrib/sqldriver/postgres"
	_ "github.com/dlock-go/dlock/contrib/sqldriver/sqlite"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/mysqltest"
	"github.com/dlock-go/dlock/internal/pgtest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/zktest"
	_ "github.com/dlock-go/dlock/memdriver"
	_ "github.com/dlock-go/dlock/zkdriver"
)

type lockFunc func(ctx context.Context) (unlock func() error, err error)

var locks = []struct {
	name  string
	start func(b *testing.B) (dsn string)
	open  func(b *testing.B, dsn string) lockFunc
}{
	{"ZooKeeper", func(b *testing.B) string { return "zk://" + zktest.Start(b).Addr() + "/overload" }, dlockOn("zk")},
	{"etcd", func(b *testing.B) string { return "etcd://" + startEtcd(b) }, dlockOn("etcd")},
	{"etcd-Mutex", startEtcd, openMutex},
	{"Redis", func(b *testing.B) string { return "redis://" + startRedis(b) + "?empty_is_new=true" }, dlockOn("redis")},
	{"redislock", startRedis, openRedislock},
	{"PostgreSQL", func(b *testing.B) string { return startPostgres(b).DSN("session_timeout=10s") }, dlockOn("postgres")},
	{"FOR-UPDATE", func(b *testing.B) string { return startPostgres(b).DSN() }, openForUpdate},
	{"MariaDB", startMariaDB, dlockOn("mysql")},
	{"SQLite", func(b *testing.B) string { return filepath.Join(b.TempDir(), "locks.db") }, dlockOn("sqlite")},
	{"memory", func(*testing.B) string { return "overload" }, dlockOn("mem")},
}

func startEtcd(b *testing.B) string  { return etcdtest.Start(b).Addr() }
func startRedis(b *testing.B) string { return redistest.Start(b, redistest.Durable()).Addr() }

func startPostgres(b *testing.B) *pgtest.Server {
	return pgtest.Start(b, pgtest.WithConfig("fsync=on"))
}

func startMariaDB(b *testing.B) string {
	server := mysqltest.Start(b, mysqltest.WithConfig("innodb_flush_log_at_trx_commit=1"))
	return server.DSN(server.Database(), "session_timeout=10s")
}

func dlockOn(driver string) func(*testing.B, string) lockFunc {
	return func(b *testing.B, dsn string) lockFunc {
		client, err := dlock.Open(driver, dsn)
		require.NoError(b, err)
		b.Cleanup(func() { client.Close() })
		return func(ctx context.Context) (func() error, error) {
			l, err := client.RWMutex("overload").Lock(ctx)
			return func() error { return l.Unlock() }, err
		}
	}
}

func openMutex(b *testing.B, addr string) lockFunc {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	require.NoError(b, err)
	session, err := concurrency.NewSession(client)
	require.NoError(b, err)
	b.Cleanup(func() { session.Close(); client.Close() })
	m := concurrency.NewMutex(session, "overload")
	return func(ctx context.Context) (func() error, error) {
		return func() error { return m.Unlock(context.Background()) }, m.Lock(ctx)
	}
}

func openRedislock(b *testing.B, addr string) lockFunc {
	client := redis.NewClient(&redis.Options{Addr: addr})
	b.Cleanup(func() { client.Close() })
	locks, retry := redislock.New(client), &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Millisecond)}
	return func(ctx context.Context) (func() error, error) {
		l, err := locks.Obtain(ctx, "overload", 10*time.Second, retry)
		return func() error { return l.Release(context.Background()) }, err
	}
}

func openForUpdate(b *testing.B, dsn string) lockFunc {
	db, err := sql.Open("pgx", dsn)
	require.NoError(b, err)
	b.Cleanup(func() { db.Close() })
	_, err = db.Exec("CREATE TABLE IF NOT EXISTS bench (id int PRIMARY KEY); INSERT INTO bench VALUES (42) ON CONFLICT DO NOTHING")
	require.NoError(b, err)
	return func(ctx context.Context) (func() error, error) {
		tx, err := db.BeginTx(ctx, nil)
		if err == nil {
			_, err = tx.ExecContext(ctx, "SELECT FROM bench FOR UPDATE")
		}
		return func() error { return tx.Commit() }, err // on error, the end of ctx rolls back
	}
}

// BenchmarkOverload reports the rate before the overload, and how fast clients
// recover from it.
func BenchmarkOverload(b *testing.B) {
	for _, l := range locks {
		b.Run(l.name, func(b *testing.B) {
			dsn, clients := l.start(b), make([]lockFunc, 12)
			for i := range clients {
				clients[i] = l.open(b, dsn)
			}
			contend(clients, time.Second, time.Minute) // to warm up
			for b.Loop() {
				r := measure(clients)
				b.ReportMetric(r.rate, "locks/s")
				b.ReportMetric(r.recovered, "%-recovered")
				b.ReportMetric(r.idle, "ms-idle-lock")
			}
		})
	}
}

// result holds the figures in locks per second, per cent, and milliseconds.
type result struct{ rate, recovered, idle float64 }

func measure(clients []lockFunc) result {
	rate := contend(clients, 3*time.Second, time.Minute) / 3
	contend(clients, 3*time.Second, 2*time.Millisecond)
	after := contend(clients, time.Second, time.Duration(32*float64(time.Second)/rate)) // the time of 32 hand-overs
	began := time.Now()
	contend(clients[:1], 0, time.Minute)
	return result{rate, 100 * after / rate, time.Since(began).Seconds() * 1e3}
}

// contend lets each client lock until d has passed. It counts the grants within
// d.
func contend(clients []lockFunc, d, deadline time.Duration) float64 {
	var granted atomic.Int64
	var group sync.WaitGroup
	end := time.Now().Add(d)
	for _, lock := range clients {
		group.Go(func() {
			for again := true; again; {
				ctx, cancel := context.WithTimeout(context.Background(), deadline)
				unlock, err := lock(ctx)
				if again = time.Now().Before(end); again && err == nil {
					granted.Add(1)
				}
				if err == nil {
					_ = unlock()
				}
				cancel()
			}
		})
	}
	group.Wait()
	return float64(granted.Load())
}

func TestAnOrphanShowsInTheFigures(t *testing.T) {
	for orphans, want := range map[bool]result{false: {1000, 100, 1}, true: {1000, 0, 16_000}} {
		synctest.Test(t, func(t *testing.T) {
			var orphan sync.Once
			held := make(chan bool, 1)
			r := measure(slices.Repeat([]lockFunc{func(ctx context.Context) (func() error, error) {
				select {
				case held <- true:
					time.Sleep(time.Millisecond)
					return func() error { <-held; return nil }, nil
				case <-ctx.Done():
					if orphans {
						orphan.Do(func() { go func() { held <- true; time.Sleep(20 * time.Second); <-held }() })
					}
					return nil, ctx.Err()
				}
			}}, 12))
			require.InDelta(t, want.rate, r.rate, 1)
			require.InDelta(t, want.recovered, r.recovered, 1)
			require.InDelta(t, want.idle, r.idle, want.idle/100)
		})
	}
}
