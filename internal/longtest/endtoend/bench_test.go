package endtoend_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/zktest"
)

// candidate is a lock implementation to compare.
type candidate struct {
	name string
	use  func() error

	took     []time.Duration
	requests int64
}

func (w *fixture) dlockCandidate(queue string) *candidate {
	m := w.client("bench").RWMutex(queue)
	return &candidate{name: "dlock", use: func() error {
		lock, err := m.Lock(context.Background())
		if err != nil {
			return err
		}
		return lock.Unlock()
	}}
}

// bareCandidate sends only what every lock on ZooKeeper needs, one Multi and
// one Delete, as a lower bound for comparison.
func (w *fixture) bareCandidate(queue string) *candidate {
	conn, path := zktest.Dial(w, quiet, w.server.Addr()), w.path(queue)
	_, err := w.raw.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(w, err)
	acl := zk.WorldACL(zk.PermAll)
	return &candidate{name: "bare", use: func() error {
		made, err := conn.Multi(
			&zk.CreateRequest{Path: path + "/bench-W-", Acl: acl, Flags: zk.FlagEphemeralSequential},
			&zk.SetDataRequest{Path: path, Version: -1})
		if err != nil {
			return err
		}
		return conn.Delete(made[0].String, -1)
	}}
}

func (w *fixture) zkLockCandidate(queue string) *candidate {
	conn, path := zktest.Dial(w, quiet, w.server.Addr()), w.path(queue)
	return &candidate{name: "zk.Lock", use: func() error {
		l := zk.NewLock(conn, path, zk.WorldACL(zk.PermAll))
		if err := l.Lock(); err != nil {
			return err
		}
		return l.Unlock()
	}}
}

// BenchmarkFreeLock acquires and releases a free lock. The candidates take
// turns, because the speed of a shared machine changes within seconds. Compare
// the reported medians; ns/op is a sum over all candidates.
func BenchmarkFreeLock(b *testing.B) {
	const turn = 10
	w := newFixture(b)
	candidates := []*candidate{w.dlockCandidate("q1"), w.bareCandidate("q2"), w.zkLockCandidate("q3")}
	for _, r := range candidates {
		require.NoError(b, r.use()) // not measured, because it creates the queue
	}
	for b.Loop() {
		for _, r := range candidates {
			before := w.server.Requests(b)
			for range turn {
				began := time.Now()
				if err := r.use(); err != nil {
					b.Fatal(err)
				}
				r.took = append(r.took, time.Since(began))
			}
			r.requests += w.server.Requests(b) - before
		}
	}
	for _, r := range candidates {
		slices.Sort(r.took)
		b.ReportMetric(float64(r.took[len(r.took)/2].Nanoseconds()), r.name+"-median-ns")
		b.ReportMetric(float64(r.requests)/float64(len(r.took)), r.name+"-requests")
	}
}

// BenchmarkContendedLock measures a lock that eight sessions contend for. It
// alternates between dlock and zk.Lock.
func BenchmarkContendedLock(b *testing.B) {
	const sessions, times = 8, 25
	w := newFixture(b)
	enlist := map[string]func(string) *candidate{"dlock": w.dlockCandidate, "zk.Lock": w.zkLockCandidate}
	names := []string{"dlock", "zk.Lock"}
	fighters := map[string][]*candidate{}
	for i, name := range names {
		for range sessions {
			r := enlist[name](fmt.Sprintf("q%d", i))
			require.NoError(b, r.use())
			fighters[name] = append(fighters[name], r)
		}
	}
	perSecond, requests := map[string][]float64{}, map[string]int64{}
	rounds := 0
	for b.Loop() {
		rounds++
		for _, name := range names {
			before, began := w.server.Requests(b), time.Now()
			fight(b, fighters[name], times)
			perSecond[name] = append(perSecond[name], sessions*times/time.Since(began).Seconds())
			requests[name] += w.server.Requests(b) - before
		}
	}
	for _, name := range names {
		slices.Sort(perSecond[name])
		b.ReportMetric(perSecond[name][rounds/2], name+"-median-acquisitions/s")
		b.ReportMetric(float64(requests[name])/float64(rounds*sessions*times), name+"-requests")
	}
}

func fight(b *testing.B, fighters []*candidate, times int) {
	b.Helper()
	var all sync.WaitGroup
	var failures errs
	for _, r := range fighters {
		all.Go(func() {
			for range times {
				if err := r.use(); err != nil {
					failures.add("%s: %w", r.name, err)
					return
				}
			}
		})
	}
	all.Wait()
	failures.none(b)
}

// BenchmarkHandOver passes one lock through a queue of fifty waiting writers.
func BenchmarkHandOver(b *testing.B) {
	const n = 50
	w := newFixture(b)
	clients := w.clients(n + 1)
	var spent float64
	var took []time.Duration
	var lines int
	for b.Loop() {
		b.StopTimer()
		l := w.queueWriters(n, func(i int) *dlock.Client { return clients[i] })
		b.StartTimer()
		began := time.Now()
		spent += l.handOver(false)
		took = append(took, time.Since(began)/n)
		lines++
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[lines/2].Nanoseconds()), "median-ns/hand-over")
	b.ReportMetric(spent/float64(lines), "requests/hand-over")
}

// BenchmarkMemory measures heap and stack per held lock and per waiter. One
// client holds 10,000 locks and another waits for each of them.
func BenchmarkMemory(b *testing.B) {
	const n = 10000
	w := newFixture(b)
	for b.Loop() {
		holder, waiter := w.client("web1"), w.client("web2")
		empty := memory()
		held := make([]*dlock.Lock, n)
		w.each(n, func(i int) (err error) {
			held[i], err = holder.RWMutex(fmt.Sprint("memory/", i)).Lock(context.Background())
			return err
		})
		w.eventually(func() bool { return w.server.Watches() >= n }, func() string { return "locks that are not watched" })
		full := memory()
		b.ReportMetric(float64(full-empty)/n, "B/held")
		var waiting sync.WaitGroup
		for i := range n {
			waiting.Go(func() {
				lock, err := waiter.RWMutex(fmt.Sprint("memory/", i)).Lock(context.Background())
				if err == nil {
					err = lock.Unlock()
				}
				if err != nil {
					b.Error(err)
				}
			})
		}
		w.eventually(func() bool { return w.server.Watches() >= 3*n }, func() string { return "waiters that do not watch" })
		b.ReportMetric(float64(memory()-full)/n, "B/waiter")
		w.each(n, func(i int) error { return held[i].Unlock() })
		waiting.Wait()
		require.NoError(b, holder.Close())
		require.NoError(b, waiter.Close())
	}
}

func (w *fixture) each(n int, f func(i int) error) {
	w.Helper()
	var group sync.WaitGroup
	for part := range 32 {
		group.Go(func() {
			for i := part; i < n; i += 32 {
				if err := f(i); err != nil {
					w.Error(err)
				}
			}
		})
	}
	group.Wait()
}

func memory() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
