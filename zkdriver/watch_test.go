package zkdriver

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

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
				w.Stop()
				if err != nil {
					t.Error(err)
				}
				w, err = b.WatchQueue(context.Background(), "q")
				w.Stop()
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	require.LessOrEqual(t, server.Watches(), int64(2))
	eventually(t, "no caller waits", func() bool {
		b.watches.mu.Lock()
		defer b.watches.mu.Unlock()
		waiters := 0
		for _, w := range b.watches.paths {
			waiters += len(w.subscribers)
		}
		return waiters == 0 && len(b.watches.paths) == 2
	})
	c := b.mustWatch(within(t), "q", p.Name)
	require.NoError(t, holder.Delete(within(t), "q", p, driver.Changed))
	ended(t, c)
	eventually(t, "no watch is left", func() bool { return server.Watches() == 0 })
	b.watches.mu.Lock()
	defer b.watches.mu.Unlock()
	require.Empty(t, b.watches.paths)
}

func TestEveryCallerThatSharesAWatchIsNotified(t *testing.T) {
	b := newFixture(t, "")
	for i := range 30 {
		p := b.mustCreate("q", "h-W-", string(rune('a'+i)))
		before := b.proxy.Frames(zktest.OpGetData)
		var all []<-chan driver.Cause
		for range 10 {
			all = append(all, b.mustWatch(within(t), "q", p.Name))
		}
		require.Equal(t, 1, b.proxy.Frames(zktest.OpGetData)-before)
		// These callers set watches while the node is being removed.
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for range 5 {
					c, err := watchName(within(t), b, "q", p.Name)
					if err != nil {
						t.Error(err)
						return
					}
					ended(t, c)
				}
			})
		}
		require.NoError(t, b.Delete(within(t), "q", p, driver.Changed))
		group.Wait()
		for _, c := range all {
			ended(t, c)
		}
	}
}

func TestWatchSurvivesAReconnectAndMissesNothing(t *testing.T) {
	b := newFixture(t, "session_timeout=20s")
	other := b.another("")
	for i := range 10 {
		p, err := create(within(t), other, "q", "h-W-", []byte{byte(i)})
		require.NoError(t, err)
		node := b.mustWatch(within(t), "q", p.Name)
		queue := b.mustWatch(within(t), "q", "")
		b.proxy.Refuse()
		b.proxy.DropConnections()
		var group sync.WaitGroup
		for range 4 { // after a reconnect, these requests could overtake the setting of the watches
			group.Go(func() { b.List(within(t), "q") })
		}
		require.NoError(t, other.Delete(within(t), "q", p, driver.Changed))
		b.proxy.Heal()
		ended(t, node)
		ended(t, queue)
		group.Wait()
	}
	require.NoError(t, b.Err())
}

func TestWatchEndsWithTheSession(t *testing.T) {
	b := newFixture(t, "")
	p := b.mustCreate("q", "h-W-", "x")
	c := b.mustWatch(context.Background(), "q", p.Name)
	queue := b.mustWatch(within(t), "empty/queue", "")
	require.NoError(t, b.Close())
	ended(t, c)
	ended(t, queue)
	_, err := watchName(within(t), b, "q", p.Name)
	require.ErrorIs(t, err, driver.ErrSessionEnded)
}

// member is a session with one node in queue "q". Its timeout is so long that it
// sends no heartbeat during a test.
type member struct {
	*session
	t     testing.TB
	proxy *zktest.Proxy
	place driver.Place
	watch driver.Watch // of the node ahead
}

const longTimeout = 10 * time.Minute

// newLine returns n members in queue order, each of which waits for the one
// before it.
func newLine(t testing.TB, n int) (line []*member) {
	t.Helper()
	server := zktest.Shared(t)
	chroot := server.Chroot(t)
	for i := range n {
		m := &member{t: t, proxy: zktest.NewProxy(t, server.Addr())}
		m.session = mustConnect(t, fmt.Sprintf("zk://%s%s?session_timeout=%v", m.proxy.Addr(), chroot, longTimeout))
		var err error
		m.place, err = create(within(t), m, "q", "h-W-", fmt.Append(nil, i))
		require.NoError(t, err)
		if i > 0 {
			m.watch, err = m.Watch(within(t), "q", m.place, line[i-1].place.Node)
			require.NoError(t, err)
		}
		line = append(line, m)
	}
	return line
}

// The release is the only request, even if the latest write of the next
// contender was sent six tenths of a session timeout ago, which is 6 s by
// default.
func TestHandOverAfterALongWaitIsOneRequest(t *testing.T) {
	const handOvers = 5
	line := newLine(t, handOvers+1)
	for _, m := range line {
		for range 3 {
			leasehook.Skew(m.conn.Lease(), longTimeout*2/10)
			require.NoError(t, m.conn.Sync("/")) // as a heartbeat
		}
	}
	requests := func() (sum int) {
		for _, m := range line {
			sum += m.proxy.Requests()
		}
		return sum
	}
	before := requests()
	for i := range handOvers {
		require.NoError(t, line[i].Delete(within(t), "q", line[i].place, driver.Released))
		require.Equal(t, driver.Released, causeOf(t, line[i+1].watch.C))
		require.NoError(t, line[i+1].Err())
	}
	require.Equal(t, handOvers, requests()-before)
}
