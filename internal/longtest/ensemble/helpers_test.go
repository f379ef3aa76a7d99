package ensemble

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/zktest"
)

// bound is the timeout of every wait in a test.
const bound = 90 * time.Second

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", bound, what)
		}
	}
}

// stalls detects moments without CPU time, in which timers are late.
type stalls struct {
	tick, stall atomic.Int64 // in Unix nanoseconds
}

// noticeable exceeds the usual delay of a timer on a busy machine.
const noticeable = 100 * time.Millisecond

func watchStalls(t testing.TB) *stalls {
	t.Helper()
	s := new(stalls)
	s.tick.Store(time.Now().UnixNano())
	end := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		ticks := time.NewTicker(noticeable / 10)
		defer ticks.Stop()
		for {
			select {
			case <-end:
				return
			case <-ticks.C:
			}
			now := time.Now().UnixNano()
			if now-s.tick.Swap(now) > int64(noticeable) {
				s.stall.Store(now)
			}
		}
	})
	t.Cleanup(func() { close(end); watching.Wait() })
	return s
}

func (s *stalls) within(d time.Duration) bool {
	now := time.Now().UnixNano()
	return now-s.tick.Load() > int64(noticeable) || now-s.stall.Load() <= int64(d)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// A server that is cut off keeps answering for syncLimit ticks of half a
// second.
func ensemble(t testing.TB, syncLimit int) *zktest.Ensemble {
	t.Helper()
	return zktest.StartEnsemble(t, 3, zktest.WithConfig(map[string]string{"initLimit": "3", "syncLimit": strconv.Itoa(syncLimit)}))
}

func dsn(path string, addrs ...string) string {
	return "zk://" + strings.Join(addrs, ",") + path
}

func open(t testing.TB, dsn string, opts ...dlock.Option) *dlock.Client {
	t.Helper()
	c, err := dlock.Open("zk", dsn, append([]dlock.Option{quiet()}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func quiet() dlock.Option { return dlock.WithLogger(slog.New(slog.DiscardHandler)) }

func answers(c *dlock.Client) bool {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	return c.Ping(ctx) == nil
}
