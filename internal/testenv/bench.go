package testenv

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
)

// Way is one way of locking, which a benchmark compares with others.
type Way struct {
	Name string
	// Contender adds a contender, and returns its function to lock and unlock.
	Contender func() (once func() error)
}

// Dlock returns the Way that uses dlock. Each contender has its own client.
func Dlock(b *testing.B, driverName, dsn string) Way {
	return Way{"dlock", func() func() error {
		client, err := dlock.Open(driverName, dsn)
		require.NoError(b, err)
		b.Cleanup(func() { client.Close() })
		m := client.RWMutex("bench")
		return func() error {
			l, err := m.Lock(context.Background())
			if err != nil {
				return err
			}
			return l.Unlock()
		}
	}}
}

// Connection returns a Way that uses a database without dlock. Each contender
// passes its own connection to the function once, which locks and unlocks.
func Connection(b *testing.B, name, sqlDriver, dsn string, once func(context.Context, *sql.Conn) error) Way {
	return Way{name, func() func() error {
		db, err := sql.Open(sqlDriver, dsn)
		require.NoError(b, err)
		b.Cleanup(func() { db.Close() })
		conn, err := db.Conn(context.Background())
		require.NoError(b, err)
		b.Cleanup(func() { conn.Close() })
		return func() error { return once(context.Background(), conn) }
	}}
}

// Free measures how long it takes to lock and unlock a free lock. It alternates
// between the ways and reports medians in microseconds.
func Free(b *testing.B, ways []Way) {
	var contenders []func() error
	for _, w := range ways {
		once := w.Contender()
		for range 20 {
			require.NoError(b, once())
		}
		contenders = append(contenders, once)
	}
	took := make([][]time.Duration, len(ways))
	for b.Loop() {
		for i, once := range contenders {
			start := time.Now()
			require.NoError(b, once())
			took[i] = append(took[i], time.Since(start))
		}
	}
	for i, w := range ways {
		slices.Sort(took[i])
		b.ReportMetric(float64(took[i][len(took[i])/2].Nanoseconds())/1e3, "us/"+w.Name)
	}
}

// Contended measures eight contenders that share one lock, for a second with
// each way in turn. It reports each way's median second: the number of locks,
// the longest wait in milliseconds, and how many times more locks the luckiest
// contender got than the unluckiest.
func Contended(b *testing.B, ways []Way) {
	const contenders = 8
	all := make([][]func() error, len(ways))
	for i, w := range ways {
		for range contenders {
			all[i] = append(all[i], w.Contender())
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
		b.ReportMetric(float64(median.locks), "locks/s:"+w.Name)
		b.ReportMetric(float64(median.longest.Milliseconds()), "ms-longest:"+w.Name)
		b.ReportMetric(median.unfair, "unfair:"+w.Name)
	}
}

type result struct {
	locks   int64
	longest time.Duration
	unfair  float64
}

func contend(b *testing.B, contenders []func() error, d time.Duration) (r result) {
	var stop atomic.Bool
	shares, longest := make([]int64, len(contenders)), make([]time.Duration, len(contenders))
	var all sync.WaitGroup
	for i, once := range contenders {
		all.Go(func() {
			for !stop.Load() {
				start := time.Now()
				if err := once(); err != nil {
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
