package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/mysqltest"
)

// A way is one of the methods of locking that the benchmarks compare: dlock, and what
// users of MySQL write without dlock.
type way struct {
	name string
	// contender sets up one contender. The function that it returns locks and
	// unlocks once.
	contender func(b *testing.B, server *mysqltest.Server, database string) func() error
}

var ways = []way{
	{"dlock", dlockWay},
	{"get_lock", connectionWay(func(ctx context.Context, c *sql.Conn) error {
		var got sql.NullInt64
		if err := c.QueryRowContext(ctx, "SELECT GET_LOCK('bench', 60)").Scan(&got); err != nil || got.Int64 != 1 {
			return cmp.Or(err, errors.New("the lock was not granted"))
		}
		return c.QueryRowContext(ctx, "SELECT RELEASE_LOCK('bench')").Scan(&got)
	})},
	{"forupdate", connectionWay(func(ctx context.Context, c *sql.Conn) error {
		tx, err := c.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		var id int
		if err := tx.QueryRowContext(ctx, "SELECT id FROM bench WHERE id = 42 FOR UPDATE").Scan(&id); err != nil {
			return err
		}
		return tx.Commit()
	})},
}

func dlockWay(b *testing.B, server *mysqltest.Server, database string) func() error {
	client, err := dlock.Open("mysql", server.DSN(database, "session_timeout=1m"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { client.Close() })
	m := client.RWMutex("bench")
	return func() error {
		l, err := m.Lock(context.Background())
		if err != nil {
			return err
		}
		return l.Unlock()
	}
}

// connectionWay returns a contender function for a way without dlock. Each contender
// opens a connection of its own, and calls once on it to lock and unlock.
func connectionWay(once func(context.Context, *sql.Conn) error) func(*testing.B, *mysqltest.Server, string) func() error {
	return func(b *testing.B, server *mysqltest.Server, database string) func() error {
		db, err := sql.Open("mysql", server.DSN(database))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { db.Close() })
		conn, err := db.Conn(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { conn.Close() })
		return func() error { return once(context.Background(), conn) }
	}
}

// benchServer starts a server that waits for the disk at every commit.
func benchServer(b *testing.B) (server *mysqltest.Server, database string) {
	server = mysqltest.Start(b, mysqltest.WithConfig("innodb_flush_method=O_DIRECT", "innodb_flush_log_at_trx_commit=1"))
	database = server.Database()
	server.SQL(b, database, "CREATE TABLE bench (id int PRIMARY KEY) ENGINE=InnoDB; INSERT INTO bench VALUES (42)")
	return server, database
}

// BenchmarkFree locks and unlocks a free lock. Each turn takes each way once, and the
// metrics are the medians in microseconds. Only dlock writes to the disk: once to lock,
// and once to unlock.
func BenchmarkFree(b *testing.B) {
	server, database := benchServer(b)
	var contenders []func() error
	for _, w := range ways {
		f := w.contender(b, server, database)
		for range 20 {
			if err := f(); err != nil {
				b.Fatal(err)
			}
		}
		contenders = append(contenders, f)
	}
	took := make([][]time.Duration, len(ways))
	for b.Loop() {
		for i, f := range contenders {
			start := time.Now()
			if err := f(); err != nil {
				b.Fatal(err)
			}
			took[i] = append(took[i], time.Since(start))
		}
	}
	for i, w := range ways {
		slices.Sort(took[i])
		b.ReportMetric(float64(took[i][len(took[i])/2].Microseconds()), "us/"+w.name)
	}
}

// BenchmarkContended lets eight contenders lock and unlock one lock again and again.
// Each turn takes each way for a second. The benchmark reports the locks per second,
// the longest wait in milliseconds, and how many times more locks the luckiest
// contender got than the unluckiest one.
func BenchmarkContended(b *testing.B) {
	const contenders = 8
	server, database := benchServer(b)
	all := make([][]func() error, len(ways))
	for i, w := range ways {
		for range contenders {
			all[i] = append(all[i], w.contender(b, server, database))
		}
		contend(b, all[i], 200*time.Millisecond)
	}
	results := make([][]result, len(ways))
	for b.Loop() {
		for i := range ways {
			results[i] = append(results[i], contend(b, all[i], time.Second))
		}
	}
	for i, w := range ways {
		r := results[i]
		slices.SortFunc(r, func(x, y result) int { return int(x.locks - y.locks) })
		median := r[len(r)/2]
		b.ReportMetric(float64(median.locks), "locks/s:"+w.name)
		b.ReportMetric(float64(median.longest.Milliseconds()), "ms-longest:"+w.name)
		b.ReportMetric(median.unfair, "unfair:"+w.name)
	}
}

type result struct {
	locks   int64
	longest time.Duration
	unfair  float64
}

// contend lets all contenders lock again and again for a while.
func contend(b *testing.B, contenders []func() error, d time.Duration) (r result) {
	var stop atomic.Bool
	shares, longest := make([]int64, len(contenders)), make([]time.Duration, len(contenders))
	var all sync.WaitGroup
	for i, f := range contenders {
		all.Go(func() {
			for !stop.Load() {
				start := time.Now()
				if err := f(); err != nil {
					b.Error(err)
					return
				}
				shares[i]++
				longest[i] = max(longest[i], time.Since(start))
			}
		})
	}
	time.Sleep(d)
	stop.Store(true)
	all.Wait()
	for _, n := range shares {
		r.locks += n
	}
	r.longest = slices.Max(longest)
	r.unfair = float64(slices.Max(shares)) / float64(max(slices.Min(shares), 1))
	return r
}
