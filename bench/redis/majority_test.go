package redis_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/majority"
)

// majorityLockers take a lock in more than half of several servers.
var majorityLockers = []struct {
	name string
	open func(b *testing.B, addrs []string) (lock func(ctx context.Context, hold func()) error)
}{
	{"dlock", func(b *testing.B, addrs []string) func(context.Context, func()) error {
		var clients []*dlock.Client
		for _, addr := range addrs {
			client, err := dlock.Open("redis", "redis://"+addr+"?empty_is_new=true")
			require.NoError(b, err)
			b.Cleanup(func() { client.Close() })
			require.NoError(b, client.Ping(b.Context()))
			clients = append(clients, client)
		}
		mutex := &majority.Mutex{Name: "stock/42", Clients: clients}
		return func(ctx context.Context, hold func()) error {
			lock, err := mutex.Lock(ctx)
			if err != nil {
				return err
			}
			hold()
			return lock.Unlock()
		}
	}},
	{"redsync", func(b *testing.B, addrs []string) func(context.Context, func()) error {
		return openRedsync(b, addrs)
	}},
	{"redsync-1ms", func(b *testing.B, addrs []string) func(context.Context, func()) error {
		return openRedsync(b, addrs, redsync.WithRetryDelay(time.Millisecond))
	}},
}

func openRedsync(b *testing.B, addrs []string, opts ...redsync.Option) func(context.Context, func()) error {
	var pools []redsyncredis.Pool
	for _, addr := range addrs {
		client := redis.NewClient(&redis.Options{Addr: addr})
		b.Cleanup(func() { client.Close() })
		pools = append(pools, goredis.NewPool(client))
	}
	locks := redsync.New(pools...)
	return func(ctx context.Context, hold func()) error {
		mutex := locks.NewMutex("redsync", append(opts, redsync.WithExpiry(lockTerm), redsync.WithTries(1<<30))...)
		if err := mutex.LockContext(ctx); err != nil {
			return err
		}
		hold()
		_, err := mutex.UnlockContext(ctx)
		return err
	}
}

// BenchmarkMajority lets six contenders hold a lock in a majority of the servers
// for 10 ms each. It reports the requests per lock over all servers, and the
// longest wait.
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
				locks := make([]func(context.Context, func()) error, 6)
				for i := range locks {
					locks[i] = l.open(b, addrs)
					require.NoError(b, locks[i](b.Context(), func() {})) // connects
				}
				before := requests()
				b.ResetTimer()
				waits := contend(b, locks, 10*time.Millisecond)
				b.ReportMetric(float64(requests()-before)/float64(len(waits)), "requests/lock")
				b.ReportMetric(float64(len(waits))/b.Elapsed().Seconds(), "locks/s")
				b.ReportMetric(float64(slices.Max(waits))/1e6, "longest-wait-ms")
			})
		}
	}
}

// contend takes b.N locks, and returns the waits.
func contend(b *testing.B, locks []func(context.Context, func()) error, hold time.Duration) (waits []time.Duration) {
	var mu sync.Mutex
	left := b.N
	take := func() bool {
		mu.Lock()
		defer mu.Unlock()
		left--
		return left >= 0
	}
	var done sync.WaitGroup
	for _, lock := range locks {
		done.Go(func() {
			for take() {
				began := time.Now()
				err := lock(b.Context(), func() {
					mu.Lock()
					waits = append(waits, time.Since(began))
					mu.Unlock()
					time.Sleep(hold)
				})
				if err != nil {
					b.Error(err)
				}
			}
		})
	}
	done.Wait()
	return waits
}
