package zkdriver

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/leasehook"
	"github.com/dlock-go/dlock/internal/zktest"
)

func ended(t testing.TB, c <-chan driver.Cause) {
	t.Helper()
	select {
	case _, open := <-c:
		require.False(t, open)
	case <-time.After(bound):
		t.Fatalf("the watch did not close within %v", bound)
	}
}

func (b *fixture) mustWatch(ctx context.Context, queue, name string) <-chan driver.Cause {
	b.t.Helper()
	c, err := watchName(ctx, b, queue, name)
	require.NoError(b.t, err)
	return c
}

func TestWaitsThatAreGivenUpLeaveNothingBehind(t *testing.T) {
	server := zktest.Start(t)
	holder := mustConnect(t, "zk://"+server.Addr())
	p, err := create(within(t), holder, "q", "h-W-", []byte("x"))
	require.NoError(t, err)
	b := &fixture{session: mustConnect(t, "zk://"+server.Addr()), t: t}
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 500 {
				w, err := b.Watch(context.Background(), "q", driver.Place{Node: p.Node})
				assert.NoError(t, err)
				w.Stop()
				w, err = b.WatchQueue(context.Background(), "q")
				assert.NoError(t, err)
				w.Stop()
			}
		})
	}
	group.Wait()
	require.LessOrEqual(t, server.Watches(), int64(2))
	b.watches.mu.Lock()
	for path, w := range b.watches.paths {
		require.Empty(t, w.subscribers, path)
	}
	b.watches.mu.Unlock()
	c := b.mustWatch(within(t), "q", p.Name)
	require.NoError(t, holder.Delete(within(t), "q", p, driver.Changed))
	ended(t, c)
	eventually(t, "no watch is left", func() bool { return server.Watches() == 0 })
	b.watches.mu.Lock()
	defer b.watches.mu.Unlock()
	require.Empty(t, b.watches.paths)
}

func TestHandOverAfterALongWaitIsOneRequest(t *testing.T) {
	const timeout = 10 * time.Minute // so long that no heartbeat is sent
	b := newFixture(t, "session_timeout="+timeout.String())
	next := mustConnect(t, "zk://"+b.proxy.Addr()+b.chroot+"?session_timeout="+timeout.String())
	p := b.mustCreate("q", "h-W-", "0")
	w, err := waitFor(within(t), next, "q", p.Name)
	require.NoError(t, err)
	for _, s := range []*session{b.session, next} {
		for range 3 {
			leasehook.Skew(s.conn.Lease(), timeout*2/10)
			require.NoError(t, s.conn.Sync("/")) // as a heartbeat
		}
	}
	before := b.proxy.Requests() // of both sessions
	require.NoError(t, b.Delete(within(t), "q", p, driver.Released))
	require.Equal(t, driver.Released, causeOf(t, w))
	require.NoError(t, next.Err())
	require.Equal(t, 1, b.proxy.Requests()-before)
}
