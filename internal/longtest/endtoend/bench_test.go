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
		for i := range held {
			var err error
			held[i], err = holder.RWMutex(fmt.Sprint("memory/", i)).Lock(context.Background())
			require.NoError(b, err)
		}
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
		w.unlock(held...)
		waiting.Wait()
		require.NoError(b, holder.Close())
		require.NoError(b, waiter.Close())
	}
}

func memory() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}
