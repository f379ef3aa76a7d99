package recipes_test

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/recipes"
)

func BenchmarkFreeLock(b *testing.B) {
	c := recipes.NewClient(memdriver.New())
	defer c.Close()
	m := c.RWMutex("q")
	b.ReportAllocs()
	for b.Loop() {
		l, err := m.Lock(bg)
		if err != nil {
			b.Fatal(err)
		}
		if err := l.Unlock(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReentry(b *testing.B) {
	c := recipes.NewClient(memdriver.New())
	defer c.Close()
	m := c.RWMutex("q")
	outer, err := m.Lock(bg)
	if err != nil {
		b.Fatal(err)
	}
	defer outer.Unlock()
	ctx := outer.Context(bg)
	b.ReportAllocs()
	for b.Loop() {
		l, err := m.Lock(ctx)
		if err != nil {
			b.Fatal(err)
		}
		_ = l.Unlock()
	}
}

func BenchmarkObserve(b *testing.B) {
	for _, readers := range []int{1000, 4000} {
		b.Run(fmt.Sprint(readers), func(b *testing.B) {
			store := memdriver.New()
			put := func(seq int) {
				require.NoError(b, store.Faults().PutNode("q", driver.FormatName("web1-R-", int64(seq)), nil))
			}
			for i := range readers {
				put(i)
			}
			c := recipes.NewClient(store)
			defer c.Close()
			next, stop := iter.Pull2(c.RWMutex("q").Observe(bg))
			defer stop()
			for i := readers; b.Loop(); i++ {
				_, err, _ := next()
				require.NoError(b, err)
				put(i)
			}
		})
	}
}

func BenchmarkHandOver(b *testing.B) {
	for _, contenders := range []int{2, 8, 64} {
		b.Run(fmt.Sprint(contenders), func(b *testing.B) {
			store := memdriver.New()
			turns := make(chan struct{}, b.N)
			for range b.N {
				turns <- struct{}{}
			}
			close(turns)
			done := make(chan error)
			b.ReportAllocs()
			b.ResetTimer()
			for range contenders {
				go func() {
					c := recipes.NewClient(store)
					defer c.Close()
					m := c.RWMutex("q")
					for range turns {
						if err := m.WithLock(bg, func(context.Context, *recipes.Lock) error { return nil }); err != nil {
							done <- err
							return
						}
					}
					done <- nil
				}()
			}
			for range contenders {
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkDrain(b *testing.B) {
	for _, n := range []int{10, 100, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			handOvers, took := 0, time.Duration(0)
			for b.Loop() {
				for range max(1, 2000/n) {
					took += drain(b, n)
					handOvers += n
				}
			}
			b.ReportMetric(float64(took.Nanoseconds())/float64(handOvers), "ns/hand-over")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func drain(b *testing.B, n int) time.Duration {
	store := memdriver.New()
	c := recipes.NewClient(store)
	defer c.Close()
	m := c.RWMutex("q")
	held, err := m.Lock(bg)
	require.NoError(b, err)
	var waiters sync.WaitGroup
	for range n {
		waiters.Go(func() {
			l, err := m.Lock(bg)
			if err == nil {
				err = l.Unlock()
			}
			if err != nil {
				b.Error(err)
			}
		})
	}
	// All writers wait after n+1 Creates, because Create also sets the watch.
	for store.Stats().Requests[faults.OpCreate] < int64(n+1) {
		time.Sleep(time.Millisecond)
	}
	began := time.Now()
	require.NoError(b, held.Unlock())
	waiters.Wait()
	return time.Since(began)
}

// BenchmarkFreeLocks takes uncontended locks, a different one per processor.
// Run it with -cpu 1,2,4.
func BenchmarkFreeLocks(b *testing.B) {
	store := memdriver.New()
	var number atomic.Int64
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		c := recipes.NewClient(store)
		defer c.Close()
		m := c.RWMutex(fmt.Sprint("q", number.Add(1)))
		for pb.Next() {
			l, err := m.Lock(bg)
			if err == nil {
				err = l.Unlock()
			}
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func TestAFreeLockOnMemoryAllocatesLittle(t *testing.T) {
	c := recipes.NewClient(memdriver.New())
	defer c.Close()
	m := c.RWMutex("q")
	n := testing.AllocsPerRun(200, func() {
		l, err := m.Lock(bg)
		require.NoError(t, err)
		require.NoError(t, l.Unlock())
	})
	require.LessOrEqual(t, n, 22.0)
}
