package zkconn

import (
	"math"
	"os"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

// world simulates a session, its server and the leader in virtual time.
type world struct {
	worldConfig
	t         *testing.T
	lease     *driver.Lease
	keepalive *keepalive
	joined    chan struct{} // closed when keepalive.run has returned

	hasNodes atomic.Bool
	mu       sync.Mutex
	closed   bool
	line     *line // the current connection, or nil
	down     bool  // whether the network to the server is down
	refusing bool  // whether the server refuses connections
	trip     time.Duration
	touched  bool // whether requests arrived since the last ping
	severed  bool // whether the server cannot reach the leader
	deposed  bool // whether the leader has lost its quorum
	expiry   time.Time
	writes   int
	requests int
	cuts     int
}

type worldConfig struct {
	timeout, margin, tick time.Duration
	stated                bool // whether the session knows the tick
	hosts                 int
	trip                  time.Duration
	pingPhase             time.Duration
	atRest                bool // whether the session begins without nodes
}

// line is a simulated connection. Once it is closed, messages in flight are
// lost.
type line struct {
	open bool
	held []func()  // messages delayed because the network is down
	last time.Time // when the latest message arrives
}

func newWorld(t *testing.T, c worldConfig) *world {
	w := &world{worldConfig: c, t: t, joined: make(chan struct{}), trip: c.trip}
	w.hasNodes.Store(!c.atRest)
	stated := time.Duration(0)
	if c.stated {
		stated = c.tick
	}
	asked := driver.Now()
	time.Sleep(w.trip)
	w.lease = driver.NewLease(c.timeout, c.margin)
	w.lease.Renew(asked)
	w.keepalive = newKeepalive(newSchedule(c.timeout, c.margin, stated, max(c.hosts, 1)), w.lease, w.hasNodes.Load)
	w.expiry = time.Now().Add(c.timeout - w.trip/2)
	w.keepalive.connected(asked, driver.Now())
	w.line = &line{open: true}
	go w.pings()
	go func() {
		defer close(w.joined)
		w.keepalive.run(w.send, w.giveUp)
	}()
	return w
}

func (w *world) end() {
	w.locked(func() { w.closed = true })
	w.lease.End(nil)
	<-w.joined
	time.Sleep(10 * w.timeout) // until all messages in flight have arrived
}

func (w *world) locked(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) request(r reach, isHeartbeat bool, ended func()) {
	connection := w.keepalive.connection()
	sent := w.lease.Now()
	w.mu.Lock()
	l := w.line
	w.requests++
	if r == toQuorum {
		w.writes++
	}
	if l == nil {
		w.mu.Unlock()
		return
	}
	w.pass(l, func() {
		w.arrive(l, r, func() { w.keepalive.answered(connection, r, sent, w.lease.Now(), isHeartbeat); ended() })
	})
	w.mu.Unlock()
}

// pass delivers a message after half a round trip, in order, with w.mu held.
func (w *world) pass(l *line, deliver func()) {
	at := time.Now().Add(w.trip / 2)
	if at.Before(l.last) {
		at = l.last
	}
	l.last = at
	time.AfterFunc(time.Until(at), func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		switch {
		case !l.open || w.closed:
		case w.down:
			l.held = append(l.held, deliver)
		default:
			deliver()
		}
	})
}

func (w *world) arrive(l *line, r reach, answered func()) {
	w.touched = true
	if r != toServer && w.severed || r == toQuorum && w.deposed {
		return // not answered without the leader or its quorum
	}
	w.pass(l, func() { go answered() })
}

// pings makes the leader ask the server about the session every half tick.
func (w *world) pings() {
	time.Sleep(w.pingPhase)
	for done := false; !done; time.Sleep(w.tick / 2) {
		w.locked(func() {
			if w.touched && !w.severed {
				w.touched = false
				w.heardOf()
			}
			done = w.closed
		})
	}
}

// heardOf makes the leader extend the session. The caller holds w.mu.
func (w *world) heardOf() {
	if !w.deposed && time.Now().Before(w.expiry) {
		w.expiry = time.Now().Add(w.timeout)
	}
}

func (w *world) send(what reach, ended func()) { go w.request(what, true, ended) }

func (w *world) giveUp(uint64) {
	w.locked(func() {
		w.cuts++
		w.hangUp()
	})
}

// hangUp closes the connection and starts to reconnect. The caller holds w.mu.
func (w *world) hangUp() {
	if w.line != nil {
		w.line.open = false
	}
	w.line = nil
	go w.reconnect()
}

// reconnect retries at the longest intervals that the dialer uses.
func (w *world) reconnect() {
	for {
		time.Sleep(w.timeout / 40)
		var trip time.Duration
		reachable, done := false, false
		w.locked(func() { trip, reachable, done = w.trip, !w.down && !w.refusing, w.closed || w.line != nil })
		if done || w.lease.Err() != nil {
			return
		}
		if !reachable {
			continue
		}
		time.Sleep(trip)
		asked := w.lease.Now()
		time.Sleep(trip / 2)
		w.locked(func() {
			if !w.severed {
				w.heardOf()
			}
		})
		time.Sleep(trip / 2)
		w.locked(func() {
			w.line = &line{open: true}
			w.keepalive.connected(asked, w.lease.Now())
		})
		return
	}
}

func (w *world) heal() {
	w.locked(func() {
		w.down, w.refusing = false, false
		if w.line == nil {
			return
		}
		for _, deliver := range w.line.held {
			deliver()
		}
		w.line.held = nil
	})
}

const phases = 25

// each runs a scenario at different times since the latest write.
func each(t *testing.T, c worldConfig, scenario func(w *world)) {
	t.Helper()
	for i := range phases {
		c.pingPhase = c.tick / 2 * time.Duration(i%7) / 7
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, c)
			defer w.end()
			time.Sleep(2*c.timeout + c.timeout*time.Duration(i)/(2*phases))
			require.NoError(t, w.lease.Err(), "the lease has ended before the fault")
			scenario(w)
		})
		if t.Failed() {
			t.Fatalf("in phase %d of %d: %+v", i, phases, c)
		}
	}
}

func (w *world) leaseLeft() time.Duration {
	began := time.Now()
	<-w.lease.Done()
	return time.Since(began)
}

const trip = time.Millisecond

var (
	notStated    = worldConfig{timeout: 10 * time.Second, margin: 2500 * time.Millisecond, tick: 2 * time.Second, trip: trip}
	tickStated   = worldConfig{timeout: 10 * time.Second, margin: 2500 * time.Millisecond, tick: 2 * time.Second, stated: true, trip: trip}
	halfMargin   = worldConfig{timeout: 10 * time.Second, margin: 5 * time.Second, tick: 2 * time.Second, trip: trip}
	atRest       = worldConfig{timeout: 10 * time.Second, margin: 2500 * time.Millisecond, tick: 2 * time.Second, trip: trip, atRest: true}
	atRestStated = worldConfig{timeout: 10 * time.Second, margin: 2500 * time.Millisecond, tick: 2 * time.Second, stated: true, trip: trip, atRest: true}
	twoTicks     = worldConfig{timeout: 4 * time.Second, margin: time.Second, tick: 2 * time.Second, trip: trip}
	severalHost  = worldConfig{timeout: 10 * time.Second, margin: 2500 * time.Millisecond, tick: 2 * time.Second, hosts: 3, trip: trip}
)

func part100(timeout time.Duration, hundredths float64) time.Duration {
	return time.Duration(math.Round(float64(timeout) * hundredths))
}

var outages = map[string]func(w *world){
	"what was under way arrives": func(w *world) {},
	"the connection was broken":  func(w *world) { w.hangUp() },
	"what was under way is lost": func(w *world) { w.line.open = false },
}

// Documented outages must be close to the longest ones survived.
func TestDocumentedOutagesAreSurvived(t *testing.T) {
	page, err := os.ReadFile("../../../docs/stores/zookeeper.md")
	require.NoError(t, err)
	rows := regexp.MustCompile(`(?m)^\| (\d+s) \| (not stated|\d+s) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \| (\S+) \|$`).FindAllStringSubmatch(string(page), -1)
	require.Len(t, rows, 4)
	for _, row := range rows {
		t.Run(row[0], func(t *testing.T) {
			var d [8]time.Duration
			for i := range d[:] {
				if i > 0 && row[i] != "not stated" {
					d[i], err = time.ParseDuration(row[i])
					require.NoError(t, err)
				}
			}
			told, outage, most, beat, next := d[3], d[4], d[5], d[6], d[7]
			c := worldConfig{timeout: d[1], tick: 2 * time.Second, stated: d[2] > 0, margin: d[1] / 4, trip: trip}
			shortest := time.Hour
			each(t, c, func(w *world) {
				w.locked(func() { w.down = true })
				shortest = min(shortest, w.leaseLeft())
			})
			require.GreaterOrEqual(t, shortest, told)
			require.LessOrEqual(t, shortest, told+c.timeout/phases)
			require.Equal(t, c.timeout+3*c.tick/2, next)
			c.trip = 10 * time.Millisecond
			for _, c.hosts = range []int{1, 3} {
				for _, begin := range outages {
					each(t, c, func(w *world) {
						w.locked(func() { w.down = true; begin(w) })
						time.Sleep(outage)
						w.heal()
						time.Sleep(3 * c.timeout)
						require.NoError(w.t, w.lease.Err())
					})
				}
			}
			s := newSchedule(c.timeout, c.margin, d[2], 1)
			every, _ := s.interval(0)
			require.InDelta(t, float64(beat), float64(every), float64(10*time.Millisecond))
			s.roundTrip = c.trip
			kept, survived := s.outage()
			require.InDelta(t, float64(told), float64(kept), float64(100*time.Millisecond))
			require.InDelta(t, float64(outage), float64(survived), float64(100*time.Millisecond))
			require.NoError(t, grown(t, c, most))
			require.Error(t, grown(t, c, most+c.timeout*5/100))
		})
	}
}

// grown returns the lease's error after round trips grow to the maximum.
func grown(t *testing.T, c worldConfig, most time.Duration) (err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, c)
		defer w.end()
		const steps = 100
		for i := range steps {
			w.locked(func() { w.trip = most * time.Duration(i+1) / steps })
			time.Sleep(c.timeout / 10)
		}
		time.Sleep(10 * c.timeout)
		err = w.lease.Err()
	})
	return err
}

func TestLeaseOfASessionWithItsFirstNode(t *testing.T) {
	for _, c := range []worldConfig{atRest, atRestStated} {
		shortest := time.Hour
		each(t, c, func(w *world) {
			w.create()
			w.locked(func() { w.down = true })
			shortest = min(shortest, w.leaseLeft())
		})
		t.Logf("%+v: %.4f T", c, shortest.Seconds()/c.timeout.Seconds())
		require.GreaterOrEqual(t, shortest, part100(c.timeout, .3))
	}
}

func (w *world) create() {
	done := make(chan struct{})
	w.request(toQuorum, false, func() { close(done) })
	<-done
	w.hasNodes.Store(true)
	require.NoError(w.t, w.keepalive.countFromWrite())
}

func TestMarginThatIsAcceptedHoldsAtRest(t *testing.T) {
	for _, timeout := range []time.Duration{time.Second, 10 * time.Second} {
		for _, ticks := range []time.Duration{0, 20, 10, 5, 4, 2} {
			for hundredths := time.Duration(1); hundredths <= 50; hundredths++ {
				for _, r := range []time.Duration{0, timeout / 1000, timeout / 100, timeout / 25} {
					c := worldConfig{timeout: timeout, margin: timeout * hundredths / 100, tick: timeout / max(ticks, 2), stated: ticks > 0, trip: r}
					for _, c.atRest = range []bool{false, true} {
						if hundredths%7 > 0 && (c.atRest || testing.Short()) {
							continue // test only every seventh margin
						}
						synctest.Test(t, func(t *testing.T) {
							w := newWorld(t, c)
							defer w.end()
							time.Sleep(4 * timeout)
							require.NoError(t, w.lease.Err(), "%+v", c)
						})
					}
				}
			}
		}
	}
}

func TestASuddenlyLongRoundTripIsSurvived(t *testing.T) {
	for _, x := range []struct {
		worldConfig
		trip float64
	}{{notStated, .17}, {severalHost, .12}, {tickStated, .25}} {
		each(t, x.worldConfig, func(w *world) {
			w.locked(func() { w.trip = part100(x.timeout, x.trip) })
			time.Sleep(4 * x.timeout)
			require.NoError(w.t, w.lease.Err(), "%+v", x)
			w.locked(func() { require.Zero(w.t, w.cuts, "%+v", x) })
		})
	}
}

func TestCostOfASessionAtRest(t *testing.T) {
	for _, x := range []struct {
		worldConfig
		writes, requests float64 // maxima per session timeout; writes count as requests
	}{{notStated, 3, 9}, {tickStated, 4.5, 9}, {atRest, 0, 9}, {twoTicks, 3, 9}, {halfMargin, 3, 9}} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, x.worldConfig)
			defer w.end()
			const periods = 100
			time.Sleep(periods * x.timeout)
			var writes, requests float64
			w.locked(func() { writes, requests = float64(w.writes)/periods, float64(w.requests)/periods })
			t.Logf("%+v: %.2f writes and %.2f requests in a session timeout", x, writes, requests)
			require.LessOrEqual(t, writes, x.writes)
			require.LessOrEqual(t, requests, x.requests)
		})
	}
}

// A Create proves less than a heartbeat, so it must not postpone one for long.
func TestProofsBetweenHeartbeatsCostNoSession(t *testing.T) {
	for _, c := range []worldConfig{notStated, tickStated, atRest, atRestStated} {
		for _, c.trip = range []time.Duration{trip, 100 * trip} {
			for _, p := range []reach{toLeader, toQuorum} {
				each(t, c, func(w *world) {
					go w.request(p, false, func() {})
					time.Sleep(3 * c.timeout)
					require.NoError(w.t, w.lease.Err(), "%v", p)
				})
			}
		}
	}
}

var breaks = map[string]func(w *world){
	"the session is cut off":                     func(w *world) { w.down = true },
	"the server is cut off from its leader":      func(w *world) { w.severed = true },
	"the leader is deposed and does not know it": func(w *world) { w.deposed = true; w.expiry = time.Now().Add(w.timeout) },
}

func TestLeaseEndsAMarginBeforeTheStoreEndsTheSession(t *testing.T) {
	for how, fail := range breaks {
		for _, c := range []worldConfig{notStated, tickStated, halfMargin, twoTicks, severalHost} {
			for _, reads := range []bool{false, true} {
				t.Run(how, func(t *testing.T) {
					each(t, c, func(w *world) { require.GreaterOrEqual(t, w.spare(fail, reads), c.margin) })
				})
			}
		}
	}
}

// spare returns how long the store keeps the session after its lease ends.
func (w *world) spare(fail func(*world), reads bool) time.Duration {
	if reads {
		go w.read()
		time.Sleep(w.timeout)
	}
	w.locked(func() { fail(w) })
	select {
	case <-w.lease.Done():
	case <-time.After(3 * w.timeout): // as if the lease ended now
	}
	ended := time.Now()
	var expiry time.Time
	w.locked(func() { expiry = w.expiry })
	return expiry.Sub(ended)
}

func (w *world) read() {
	for w.lease.Err() == nil {
		go w.request(toServer, false, func() {})
		time.Sleep(w.timeout / 200)
	}
}
