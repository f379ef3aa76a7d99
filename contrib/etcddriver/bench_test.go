// These commands compare the driver with the lock that comes with etcd's client
// library:
//
//	go test -run '^$' -bench FreeLock -benchtime 100x ./
//	go test -run '^$' -bench 'Contended|Drain' -benchtime 5x ./

package etcddriver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/etcdtest"
)

// locker acquires a lock.
type locker func() (unlock func() error, err error)

// ofDlock opens a session and returns a locker that takes a dlock lock. ofMutex
// does the same with etcd's concurrency.Mutex.
func ofDlock(b testing.TB, server *etcdtest.Server, name string) locker {
	client, err := dlock.Open("etcd", "etcd://"+server.Addr()+"/bench?session_timeout=60s")
	require.NoError(b, err)
	require.NoError(b, client.Ping(within(b)))
	b.Cleanup(func() { _ = client.Close() })
	m := client.RWMutex(name)
	return func() (func() error, error) {
		l, err := m.Lock(context.Background())
		if err != nil {
			return nil, err
		}
		return l.Unlock, nil
	}
}

func ofMutex(b testing.TB, server *etcdtest.Server, name string) locker {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Addr()}, Logger: zap.NewNop()})
	require.NoError(b, err)
	session, err := concurrency.NewSession(client, concurrency.WithTTL(60))
	require.NoError(b, err)
	b.Cleanup(func() { session.Close(); client.Close() })
	m := concurrency.NewMutex(session, "mutex/"+name)
	return func() (func() error, error) {
		ctx := context.Background()
		return func() error { return m.Unlock(ctx) }, m.Lock(ctx)
	}
}

var lockers = []struct {
	name string
	make func(testing.TB, *etcdtest.Server, string) locker
	keys string // prefix of the locks' keys
}{{"dlock", ofDlock, "bench/"}, {"Mutex", ofMutex, "mutex/"}}

// turn is how many times in a row BenchmarkFreeLock takes one kind of lock
// before it switches to the other.
const turn = 50

// BenchmarkFreeLock compares the median times that dlock and etcd's Mutex take
// for a free lock. It alternates between them, so that other load affects both,
// but not after every lock, because switching evicts code from the CPU caches.
func BenchmarkFreeLock(b *testing.B) {
	server := etcdtest.Start(b)
	lock := make([]locker, len(lockers))
	times := make([][]time.Duration, len(lockers))
	for i, l := range lockers {
		lock[i] = l.make(b, server, "free")
	}
	for b.Loop() {
		for i := range lock {
			for range turn {
				began := time.Now()
				unlock, err := lock[i]()
				require.NoError(b, err)
				require.NoError(b, unlock())
				times[i] = append(times[i], time.Since(began))
			}
		}
	}
	median := make([]float64, len(lockers))
	for i, l := range lockers {
		slices.Sort(times[i])
		median[i] = float64(times[i][len(times[i])/2].Microseconds())
		b.ReportMetric(median[i], "µs/"+l.name)
	}
	b.ReportMetric(median[0]/median[1], lockers[0].name+"/"+lockers[1].name)
}

// BenchmarkContended lets n contenders compete for one lock, for dlock and
// etcd's Mutex in turn. It reports locks per second, the longest wait, and the
// fewest and the most locks that any one contender got.
func BenchmarkContended(b *testing.B) {
	for _, n := range []int{2, 8, 32} {
		b.Run(fmt.Sprint(n, " contenders"), func(b *testing.B) {
			server := etcdtest.Start(b)
			contenders := make([][]locker, len(lockers))
			for i, l := range lockers {
				for range n {
					contenders[i] = append(contenders[i], l.make(b, server, "contended"))
				}
			}
			rounds := make([][]round, len(lockers))
			for b.Loop() {
				for i := range lockers {
					rounds[i] = append(rounds[i], contend(b, contenders[i], time.Second))
				}
			}
			for i, l := range lockers {
				slices.SortFunc(rounds[i], func(x, y round) int { return x.total - y.total })
				r := rounds[i][len(rounds[i])/2]
				b.ReportMetric(float64(r.total)/r.took.Seconds(), l.name+"/s")
				b.ReportMetric(float64(r.longest.Milliseconds()), "ms-longest-"+l.name)
				b.ReportMetric(float64(r.least), "least-"+l.name)
				b.ReportMetric(float64(r.most), "most-"+l.name)
			}
		})
	}
}

// BenchmarkDrain measures the time until each of 100 waiters has held the lock
// once, for dlock and etcd's Mutex in turn. It reports the median times and the
// median of their ratio.
func BenchmarkDrain(b *testing.B) {
	const waiters = 100
	server := etcdtest.Start(b)
	contenders, times := make([][]locker, len(lockers)), make([][]time.Duration, len(lockers))
	for i, l := range lockers {
		for range waiters + 1 {
			contenders[i] = append(contenders[i], l.make(b, server, "drain"))
		}
	}
	admin := raw(b, server)
	for b.Loop() {
		for i, l := range lockers {
			unlock, err := contenders[i][0]()
			require.NoError(b, err)
			var group sync.WaitGroup
			for _, lock := range contenders[i][1:] {
				group.Go(func() {
					unlock, err := lock()
					if err == nil {
						err = unlock()
					}
					assert.NoError(b, err)
				})
			}
			eventually(b, func() bool {
				reply, err := admin.Get(within(b), l.keys, clientv3.WithPrefix(), clientv3.WithKeysOnly())
				return err == nil && len(reply.Kvs) > waiters // more, because the holder has a key too
			})
			began := time.Now()
			require.NoError(b, unlock())
			group.Wait()
			times[i] = append(times[i], time.Since(began))
		}
	}
	ratios := make([]float64, len(times[0])) // dlock's time divided by Mutex's, for each round
	for i := range ratios {
		ratios[i] = times[0][i].Seconds() / times[1][i].Seconds()
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], lockers[0].name+"/"+lockers[1].name)
	for i, l := range lockers {
		slices.Sort(times[i])
		b.ReportMetric(float64(times[i][len(times[i])/2].Milliseconds()), "ms/"+l.name)
	}
}

type round struct {
	total, least, most int
	longest, took      time.Duration
}

func contend(b *testing.B, contenders []locker, d time.Duration) round {
	counts, longest := make([]int, len(contenders)), make([]time.Duration, len(contenders))
	began := time.Now()
	var group sync.WaitGroup
	for i, lock := range contenders {
		group.Go(func() {
			for time.Since(began) < d {
				asked := time.Now()
				unlock, err := lock()
				if err != nil {
					b.Error(err)
					return
				}
				longest[i] = max(longest[i], time.Since(asked))
				counts[i]++
				assert.NoError(b, unlock())
			}
		})
	}
	group.Wait()
	r := round{least: slices.Min(counts), most: slices.Max(counts), longest: slices.Max(longest), took: time.Since(began)}
	for _, n := range counts {
		r.total += n
	}
	return r
}
