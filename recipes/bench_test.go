package recipes_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/recipes"
)

func BenchmarkFreeLock(b *testing.B) {
	c := recipes.New(memdriver.New())
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
	c := recipes.New(memdriver.New())
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
					c := recipes.New(store)
					defer c.Close()
					m := c.RWMutex("q")
					for range turns {
						if err := m.WithLock(bg, func(context.Context) error { return nil }); err != nil {
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

// The allocations of a free lock are counted, not timed, so that a change that adds some is
// noticed.
func TestAFreeLockOnMemoryAllocatesLittle(t *testing.T) {
	c := recipes.New(memdriver.New())
	defer c.Close()
	m := c.RWMutex("q")
	n := testing.AllocsPerRun(200, func() {
		l, err := m.Lock(bg)
		require.NoError(t, err)
		require.NoError(t, l.Unlock())
	})
	require.LessOrEqual(t, n, 15.0)
}
