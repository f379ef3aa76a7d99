// Package redis_test compares the Redis driver with other lock libraries for Redis.
package redis_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/contrib/redisdriver"
	"github.com/dlock-go/dlock/internal/redistest"
)

// locker is a lock library to compare.
type locker struct {
	name string
	// open opens a session. Calling lock takes the lock, calls hold, and
	// unlocks.
	open func(b *testing.B, addr string) (lock func(ctx context.Context, hold func()) error)
}

const lockTerm = 10 * time.Second

var lockers = []locker{
	{"dlock", func(b *testing.B, addr string) func(context.Context, func()) error {
		client, err := dlock.Open("redis", "redis://"+addr+"?empty_is_new=true")
		require.NoError(b, err)
		b.Cleanup(func() { client.Close() })
		require.NoError(b, client.Ping(b.Context()))
		mutex := client.RWMutex("stock/42")
		return func(ctx context.Context, hold func()) error {
			lock, err := mutex.Lock(ctx)
			if err != nil {
				return err
			}
			hold()
			return lock.Unlock()
		}
	}},
	{"redislock", func(b *testing.B, addr string) func(context.Context, func()) error {
		client := redis.NewClient(&redis.Options{Addr: addr})
		b.Cleanup(func() { client.Close() })
		locks := redislock.New(client)
		retry := &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Millisecond)}
		return func(ctx context.Context, hold func()) error {
			lock, err := locks.Obtain(ctx, "redislock", lockTerm, retry)
			if err != nil {
				return err
			}
			hold()
			return lock.Release(ctx)
		}
	}},
	{"redsync", func(b *testing.B, addr string) func(context.Context, func()) error {
		client := redis.NewClient(&redis.Options{Addr: addr})
		b.Cleanup(func() { client.Close() })
		locks := redsync.New(goredis.NewPool(client))
		return func(ctx context.Context, hold func()) error {
			mutex := locks.NewMutex("redsync", redsync.WithExpiry(lockTerm), redsync.WithTries(1<<30), redsync.WithRetryDelay(time.Millisecond))
			if err := mutex.LockContext(ctx); err != nil {
				return err
			}
			hold()
			_, err := mutex.UnlockContext(ctx)
			return err
		}
	}},
}

// persistences are the server's persistence settings to compare.
var persistences = []struct {
	name   string
	option redistest.Option
}{
	{"appendonly=no", redistest.With()},
	{"appendfsync=everysec", redistest.With("appendonly yes", "appendfsync everysec")},
	{"appendfsync=always", redistest.Durable()},
}

// BenchmarkFreeLock takes and releases a free lock, alternating between the
// libraries, and reports the median times.
func BenchmarkFreeLock(b *testing.B) {
	for _, p := range persistences {
		b.Run(p.name, func(b *testing.B) {
			server := redistest.Start(b, p.option)
			var locks []func(context.Context, func()) error
			for _, l := range lockers {
				locks = append(locks, l.open(b, server.Addr()))
			}
			times := make([][]time.Duration, len(lockers))
			for b.Loop() {
				for i, lock := range locks {
					began := time.Now()
					if err := lock(b.Context(), func() {}); err != nil {
						b.Fatal(err)
					}
					times[i] = append(times[i], time.Since(began))
				}
			}
			for i, l := range lockers {
				b.ReportMetric(micros(quantile(times[i], 0.5)), l.name+"-us")
			}
			b.ReportMetric(float64(quantile(times[0], 0.5))/float64(quantile(times[1], 0.5)), "x-redislock")
		})
	}
}

// BenchmarkContendedLock lets eight sessions contend for one lock and hold it
// for a millisecond each. It reports the locks per second, the longest wait,
// and the fewest and most locks of any session.
func BenchmarkContendedLock(b *testing.B) {
	for _, l := range lockers {
		b.Run(l.name, func(b *testing.B) {
			server := redistest.Start(b, redistest.Durable())
			const sessions = 8
			var mu sync.Mutex
			var waits []time.Duration
			shares := make([]int, sessions)
			left := b.N
			take := func() bool {
				mu.Lock()
				defer mu.Unlock()
				left--
				return left >= 0
			}
			var done sync.WaitGroup
			locks := make([]func(context.Context, func()) error, sessions)
			for i := range locks {
				locks[i] = l.open(b, server.Addr())
			}
			b.ResetTimer()
			for i, lock := range locks {
				done.Go(func() {
					for take() {
						began := time.Now()
						err := lock(b.Context(), func() {
							mu.Lock()
							waits = append(waits, time.Since(began))
							shares[i]++
							mu.Unlock()
							time.Sleep(time.Millisecond)
						})
						if err != nil {
							b.Error(err)
						}
					}
				})
			}
			done.Wait()
			b.ReportMetric(float64(len(waits))/b.Elapsed().Seconds(), "locks/s")
			b.ReportMetric(float64(slices.Max(waits))/1e6, "longest-wait-ms")
			b.ReportMetric(float64(slices.Min(shares)), "least")
			b.ReportMetric(float64(slices.Max(shares)), "most")
		})
	}
}

func quantile(times []time.Duration, q float64) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return sorted[int(q*float64(len(sorted)-1))]
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
