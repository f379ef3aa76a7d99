package zkdriver

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/leasehook"
	"github.com/dlock-go/dlock/internal/zktest"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// member is a session with one node in queue "q". The test can advance the
// clock of the session's lease.
type member struct {
	*session
	t     testing.TB
	proxy *zktest.Proxy
	place driver.Place
	watch driver.Watch
}

// newLine returns n members in queue order, none of which is waiting yet.
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
		line = append(line, m)
	}
	return line
}

func (m *member) waitFor(ahead *member) {
	m.t.Helper()
	var err error
	m.watch, err = m.Watch(within(m.t), "q", m.place, ahead.place.Node)
	require.NoError(m.t, err)
}

func (m *member) delete(why driver.Cause) {
	m.t.Helper()
	require.NoError(m.t, m.Delete(within(m.t), "q", m.place, why))
}

// pass advances the clock of the member's lease until its latest write is too
// old for a grant. It does so in small increments, because the session gives up
// a connection on which a heartbeat is unanswered for long.
func (m *member) pass() {
	m.t.Helper()
	for range 3 {
		leasehook.Skew(m.conn.Lease(), longTimeout*13/100)
		require.NoError(m.t, m.conn.Sync("/"))
	}
	m.conn.DutyChanged() // makes the session's timers notice the new time
}

func (m *member) becomes(d zkconn.Duty) {
	m.t.Helper()
	eventually(m.t, fmt.Sprint("duty ", d), func() bool { return m.own.duty() == d })
}

func (m *member) hasSent(writes int) {
	m.t.Helper()
	eventually(m.t, "a recent write was answered", func() bool {
		m.own.addCreating(1) // makes the session count as one that may hold a lock
		defer m.own.addCreating(-1)
		return m.conn.Confirmed()
	})
	require.Equal(m.t, writes, m.writes())
}

func (m *member) writes() int { return m.proxy.Frames(zktest.OpMulti) }

// A waiter that is next in line acquires the lock without another request when
// its predecessor is deleted, however long it has waited.
func TestNextInLineSendsNothingBeforeItsGrant(t *testing.T) {
	for name, passes := range map[string]int{"a short time": 1, "twice the timeout": 6} {
		for _, between := range []int{0, 1} { // nodes between the predecessor and the waiter, such as readers
			t.Run(fmt.Sprint(name, between), func(t *testing.T) {
				line := newLine(t, 3+between)
				v, w, x := line[0], line[1], line[2+between]
				x.waitFor(w)
				writes := x.writes()
				for range passes {
					x.pass()
					x.becomes(zkconn.Waiting)
				}
				require.Equal(t, writes, x.writes(), "V is the first node")

				v.delete(driver.Released)
				x.becomes(zkconn.Next)
				x.hasSent(writes + 1)
				for i := range passes {
					x.pass()
					x.hasSent(writes + 2 + i)
				}
				before := x.proxy.Requests()
				w.delete(driver.Released)
				require.Equal(t, driver.Released, causeOf(t, x.watch.C))
				require.Equal(t, before, x.proxy.Requests())
			})
		}
	}
}

// If the predecessor releases the lock while a heartbeat write is in flight,
// the grant waits for that write instead of sending another.
func TestGrantJoinsTheWriteOfTheNextInLine(t *testing.T) {
	line := newLine(t, 3)
	v, w, x := line[0], line[1], line[2]
	x.waitFor(w)
	for range 2 {
		x.pass()
		x.becomes(zkconn.Waiting)
	}
	held := x.proxy.HoldRequests(zktest.Op(zktest.OpMulti))
	v.delete(driver.Released)
	closed(t, "the write", held.Held())
	before := x.proxy.Requests()
	w.delete(driver.Released)
	eventually(t, "the event of the release", func() bool { return x.own.duty() == zkconn.Holding })
	requireNoEvent(t, x.watch.C)
	held.Release()
	require.Equal(t, driver.Released, causeOf(t, x.watch.C))
	require.Equal(t, before, x.proxy.Requests())
}

// V is the node directly before the waiter's predecessor. If V is deleted
// without a release, the waiter may still not be next in line: its session must
// list the queue and send no write.
func TestWaiterWatchesAnotherNodeWhenVGoes(t *testing.T) {
	for name, goes := range map[string]func(v *member){
		"gives up": func(v *member) { v.delete(driver.Changed) },
		"is renamed": func(v *member) {
			_, err := v.Replace(within(v.t), "q", v.place, "h-R-")
			require.NoError(v.t, err)
		},
		"loses its session": func(v *member) { require.NoError(v.t, v.Close()) },
	} {
		t.Run(name, func(t *testing.T) {
			line := newLine(t, 4)
			first, v, w, x := line[0], line[1], line[2], line[3]
			x.waitFor(w)
			x.pass()
			x.becomes(zkconn.Waiting)
			writes, lists := x.writes(), x.proxy.Frames(zktest.OpGetChildren2)
			goes(v)
			eventually(t, "a list", func() bool { return x.proxy.Frames(zktest.OpGetChildren2) == lists+1 })
			x.becomes(zkconn.Waiting)
			require.Equal(t, writes, x.writes())

			first.delete(driver.Released)
			if name == "is renamed" {
				x.becomes(zkconn.Waiting)
				require.NoError(t, v.Close())
			}
			x.becomes(zkconn.Next)
			x.hasSent(writes + 1)
		})
	}
}

// However many waiters give up, only the session that is next in line may send
// writes.
func TestOneSessionOfAQueueWritesWhenWaitersGiveUp(t *testing.T) {
	line := newLine(t, 8)
	for i, m := range line[1:] {
		m.waitFor(line[i])
	}
	settle := func() {
		for i, m := range line[1:] {
			m.pass()
			if i == 0 {
				m.becomes(zkconn.Next)
			} else {
				m.becomes(zkconn.Waiting)
			}
		}
	}
	settle()
	for _, gone := range []int{3, 1, 2, 1} {
		var before []int
		for _, m := range line {
			before = append(before, m.writes())
		}
		line[gone].delete(driver.Changed)
		behind := line[gone+1]
		ended(t, behind.watch.C)
		_, err := behind.List(within(t), "q") // package driver requires a List when a watch has ended
		require.NoError(t, err)
		behind.waitFor(line[gone-1])
		for i, m := range line {
			if i > gone+1 {
				m.becomes(zkconn.Waiting)
				require.Equal(t, before[i], m.writes(), "contender %d", i)
			}
		}
		line = append(line[:gone:gone], line[gone+1:]...)
		settle()
	}
}

// A release reported after a reconnect is not trusted, so the waiter must list
// the queue.
func TestWaiterLearnsOfItsTurnAfterAReconnect(t *testing.T) {
	line := newLine(t, 3)
	v, w, x := line[0], line[1], line[2]
	x.waitFor(w)
	x.pass()
	x.becomes(zkconn.Waiting)
	writes, lists := x.writes(), x.proxy.Frames(zktest.OpGetChildren2)
	connection := x.conn.Connection()
	x.proxy.Refuse()
	x.proxy.DropConnections()
	v.delete(driver.Released)
	x.proxy.Heal()
	eventually(t, "a new connection", func() bool { return x.conn.Connection() > connection })
	x.becomes(zkconn.Next)
	x.hasSent(writes + 1)
	require.Equal(t, lists+1, x.proxy.Frames(zktest.OpGetChildren2))
}

func TestANewWatchStartsTheTurnAnew(t *testing.T) {
	var o ownNodes
	o.add("q", driver.Place{Node: driver.Node{Name: "w-W-0000000007", Seq: 7, Epoch: 1}, Token: 8}, 1)
	turnOf := func() *turn { return o.byToken[8].turn }
	w := driver.Node{Name: "w-W-0000000006", Seq: 6, Epoch: 1}
	first := o.beginWait("q", 8, []driver.Node{w})
	require.Equal(t, zkconn.Unsure, o.duty())
	old := turnOf()
	o.learn(old, behind, "/q/v")
	require.Equal(t, zkconn.Waiting, o.duty())
	second := o.beginWait("q", 8, []driver.Node{w})
	require.Equal(t, zkconn.Unsure, o.duty())
	require.False(t, o.watchEnded("/q/v", driver.Released))
	o.learn(old, next, "")
	require.Equal(t, zkconn.Unsure, o.duty(), "what was learned for the first watch does not count")
	o.learn(turnOf(), next, "")
	require.Equal(t, zkconn.Next, o.duty())
	first(false)
	require.Equal(t, zkconn.Next, o.duty(), "one of two watches is open")
	second(true)
	require.Equal(t, zkconn.Holding, o.duty())
	o.beginWait("q", 8, []driver.Node{w})
	o.learn(turnOf(), behind, "/q/v")
	o.forget(8)
	require.Equal(t, zkconn.Idle, o.duty())
	require.Zero(t, o.next)
	require.Empty(t, o.unsure)
	require.Empty(t, o.behind)
}
