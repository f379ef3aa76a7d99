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

// rival is a way to take and give back one lock.
type rival struct {
	name string
	use  func() error

	took     []time.Duration
	requests int64
}

// dlockRival is the lock of this module, in a session of its own.
func (w *world) dlockRival(queue string) *rival {
	m := w.client("bench").RWMutex(queue)
	return &rival{name: "dlock", use: func() error {
		lock, err := m.Lock(context.Background())
		if err != nil {
			return err
		}
		return lock.Unlock()
	}}
}

// bareRival is the least that a lock on ZooKeeper can do: one Multi and one Delete, and no care for anything.
func (w *world) bareRival(queue string) *rival {
	conn, path := zktest.Dial(w, quiet, w.server.Addr()), w.path(queue)
	_, err := w.raw.Create(path, nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(w, err)
	acl := zk.WorldACL(zk.PermAll)
	return &rival{name: "bare", use: func() error {
		made, err := conn.Multi(
			&zk.CreateRequest{Path: path + "/bench-W-", Acl: acl, Flags: zk.FlagEphemeralSequential},
			&zk.SetDataRequest{Path: path, Version: -1})
		if err != nil {
			return err
		}
		return conn.Delete(made[0].String, -1)
	}}
}

// zkLockRival is go-zookeeper's own lock.
func (w *world) zkLockRival(queue string) *rival {
	conn, path := zktest.Dial(w, quiet, w.server.Addr()), w.path(queue)
	return &rival{name: "zk.Lock", use: func() error {
		l := zk.NewLock(conn, path, zk.WorldACL(zk.PermAll))
		if err := l.Lock(); err != nil {
			return err
		}
		return l.Unlock()
	}}
}

// BenchmarkFreeLock takes and gives back a free lock, the rivals in turns, as a machine's mood changes within
// seconds. The medians are comparable, ns/op is the sum of all.
func BenchmarkFreeLock(b *testing.B) {
	const turn = 10
	w := newWorld(b)
	rivals := []*rival{w.dlockRival("q1"), w.bareRival("q2"), w.zkLockRival("q3")}
	for _, r := range rivals {
		require.NoError(b, r.use()) // makes the queue
	}
	for b.Loop() {
		for _, r := range rivals {
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
	for _, r := range rivals {
		slices.Sort(r.took)
		b.ReportMetric(float64(r.took[len(r.took)/2].Nanoseconds()), r.name+"-median-ns")
		b.ReportMetric(float64(r.requests)/float64(len(r.took)), r.name+"-requests")
	}
}

// BenchmarkContendedLock has eight sessions fight for one lock, the rivals in turns.
func BenchmarkContendedLock(b *testing.B) {
	const sessions, times = 8, 25
	w := newWorld(b)
	enlist := map[string]func(string) *rival{"dlock": w.dlockRival, "zk.Lock": w.zkLockRival}
	names := []string{"dlock", "zk.Lock"}
	fighters := map[string][]*rival{}
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

func fight(b *testing.B, fighters []*rival, times int) {
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

// BenchmarkHandOver lets fifty writers in who wait for one lock.
func BenchmarkHandOver(b *testing.B) {
	const n = 50
	w := newWorld(b)
	clients := w.clients(n + 1)
	var spent float64
	var took []time.Duration
	var lines int
	for b.Loop() {
		b.StopTimer()
		l := w.newLine(n, func(i int) *dlock.Client { return clients[i] })
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

// BenchmarkMemory tells what a lock that is held costs the process in memory, and what somebody who waits costs it, when one session has 10,000 of
// them, each on a lock of its own: the heap and the stacks.
func BenchmarkMemory(b *testing.B) {
	const n = 10000
	w := newWorld(b)
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

// each calls f for 0 to n-1, several at a time.
func (w *world) each(n int, f func(i int) error) {
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

// memory is what heap and stacks take, when the garbage is gone.
func memory() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
