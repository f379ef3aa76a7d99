package endtoend_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
)

// BenchmarkMemory measures heap and stack per held lock and per waiter. One
// client holds 10,000 locks and another waits for each of them.
func BenchmarkMemory(b *testing.B) {
	const n = 10000
	w := newFixture(b)
	for b.Loop() {
		holder, waiter := w.client("web1", ""), w.client("web2", "")
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
