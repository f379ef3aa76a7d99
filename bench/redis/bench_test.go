// Package redis_test compares the Redis driver with other lock libraries for Redis.
package redis_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/contrib/redisdriver"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/majority"
)

type lockFunc func(ctx context.Context) (unlock func() error, err error)

type locker struct {
	name string
	open func(b *testing.B, addrs ...string) lockFunc // opens a session
}

const lockTerm = 10 * time.Second

var (
	lockers         = []locker{{"dlock", openDlock}, {"redislock", openRedislock}, {"redsync", redsyncWith(redsync.WithRetryDelay(time.Millisecond))}}
	majorityLockers = []locker{{"dlock", openMajority}, {"redsync", redsyncWith()}, {"redsync-1ms", redsyncWith(redsync.WithRetryDelay(time.Millisecond))}}
)

func dlockClient(b *testing.B, addr string) *dlock.Client {
	client, err := dlock.Open("redis", "redis://"+addr+"?empty_is_new=true")
	require.NoError(b, err)
	b.Cleanup(func() { client.Close() })
	require.NoError(b, client.Ping(b.Context()))
	return client
}

func openDlock(b *testing.B, addrs ...string) lockFunc {
	mutex := dlockClient(b, addrs[0]).RWMutex("stock/42")
	return func(ctx context.Context) (func() error, error) {
		lock, err := mutex.Lock(ctx)
		return func() error { return lock.Unlock() }, err
	}
}

func openMajority(b *testing.B, addrs ...string) lockFunc {
	var clients []*dlock.Client
	for _, addr := range addrs {
		clients = append(clients, dlockClient(b, addr))
	}
	mutex := &majority.Mutex{Name: "stock/42", Clients: clients}
	return func(ctx context.Context) (func() error, error) {
		lock, err := mutex.Lock(ctx)
		return func() error { return lock.Unlock() }, err
	}
}

func redisClient(b *testing.B, addr string) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: addr})
	b.Cleanup(func() { client.Close() })
	return client
}

func openRedislock(b *testing.B, addrs ...string) lockFunc {
	locks := redislock.New(redisClient(b, addrs[0]))
	retry := &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Millisecond)}
	return func(ctx context.Context) (func() error, error) {
		lock, err := locks.Obtain(ctx, "redislock", lockTerm, retry)
		return func() error { return lock.Release(ctx) }, err
	}
}

func redsyncWith(opts ...redsync.Option) func(b *testing.B, addrs ...string) lockFunc {
	opts = append(opts, redsync.WithExpiry(lockTerm), redsync.WithTries(1<<30))
	return func(b *testing.B, addrs ...string) lockFunc {
		var pools []redsyncredis.Pool
		for _, addr := range addrs {
			pools = append(pools, goredis.NewPool(redisClient(b, addr)))
		}
		locks := redsync.New(pools...)
		return func(ctx context.Context) (func() error, error) {
			mutex := locks.NewMutex("redsync", opts...)
			err := mutex.LockContext(ctx)
			return func() error { _, err := mutex.UnlockContext(ctx); return err }, err
		}
	}
}

func lockAndUnlock(b *testing.B, lock lockFunc) {
	unlock, err := lock(b.Context())
	if err == nil {
		err = unlock()
	}
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkFreeLock alternates between the libraries, and reports the median
// times of a free lock.
func BenchmarkFreeLock(b *testing.B) {
	for name, persistence := range map[string]redistest.Option{
		"appendonly=no":        redistest.With(),
		"appendfsync=everysec": redistest.With("appendonly yes", "appendfsync everysec"),
		"appendfsync=always":   redistest.Durable(),
	} {
		b.Run(name, func(b *testing.B) {
			server := redistest.Start(b, persistence)
			var locks []lockFunc
			for _, l := range lockers {
				locks = append(locks, l.open(b, server.Addr()))
			}
			times := make([][]time.Duration, len(lockers))
			for b.Loop() {
				for i, lock := range locks {
					began := time.Now()
					lockAndUnlock(b, lock)
					times[i] = append(times[i], time.Since(began))
				}
			}
			for i, l := range lockers {
				slices.Sort(times[i])
				b.ReportMetric(float64(times[i][len(times[i])/2].Nanoseconds())/1e3, l.name+"-us")
			}
		})
	}
}

func BenchmarkContendedLock(b *testing.B) {
	for _, l := range lockers {
		b.Run(l.name, func(b *testing.B) {
			server := redistest.Start(b, redistest.Durable())
			locks := make([]lockFunc, 8)
			for i := range locks {
				locks[i] = l.open(b, server.Addr())
			}
			contend(b, locks, time.Millisecond)
		})
	}
}

// BenchmarkMajority also reports the requests per lock over all servers.
func BenchmarkMajority(b *testing.B) {
	for _, servers := range []int{3, 5} {
		for _, l := range majorityLockers {
			b.Run(fmt.Sprintf("servers=%d/%s", servers, l.name), func(b *testing.B) {
				var addrs []string
				var proxies []*redistest.Proxy
				for range servers {
					proxy := redistest.NewProxy(b, redistest.Start(b, redistest.Durable()).Addr(), func([]string) int32 { return 0 })
					addrs, proxies = append(addrs, proxy.Addr()), append(proxies, proxy)
				}
				requests := func() (n int) {
					for _, p := range proxies {
						n += p.Frames(0)
					}
					return n
				}
				locks := make([]lockFunc, 6)
				for i := range locks {
					locks[i] = l.open(b, addrs...)
					lockAndUnlock(b, locks[i]) // connects
				}
				before := requests()
				contend(b, locks, 10*time.Millisecond)
				b.ReportMetric(float64(requests()-before)/float64(b.N), "requests/lock")
			})
		}
	}
}

// contend takes b.N locks, and reports the rate, the longest wait and the
// sessions' shares.
func contend(b *testing.B, sessions []lockFunc, hold time.Duration) {
	var mu sync.Mutex
	var longest time.Duration
	shares := make([]int, len(sessions))
	left := b.N
	take := func() bool {
		mu.Lock()
		defer mu.Unlock()
		left--
		return left >= 0
	}
	var done sync.WaitGroup
	b.ResetTimer()
	for i, lock := range sessions {
		done.Go(func() {
			for take() {
				began := time.Now()
				unlock, err := lock(b.Context())
				if err != nil {
					b.Error(err)
					return
				}
				mu.Lock()
				longest = max(longest, time.Since(began))
				shares[i]++
				mu.Unlock()
				time.Sleep(hold)
				if err := unlock(); err != nil {
					b.Error(err)
				}
			}
		})
	}
	done.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "locks/s")
	b.ReportMetric(float64(longest)/1e6, "longest-wait-ms")
	b.ReportMetric(float64(slices.Min(shares)), "least")
	b.ReportMetric(float64(slices.Max(shares)), "most")
}
