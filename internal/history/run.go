package history

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

// Store describes a store to make histories on, and the faults that Run can
// inject.
type Store struct {
	// Of is the name of the store in the records, such as redis.
	Of string

	// Config is what the driver's test passes to dlocktest.Run. Only New, which
	// Run calls once for each history, is required. Run injects faults with the
	// hooks Drop, CutOff, Reset, SilenceNotices, LoseRequest, LoseReply,
	// DelayReplies, Pause, RemoveQueue and RemoveNode.
	//
	// Run calls one hook at a time, heal functions included, from several
	// goroutines. Hooks must accept a session or node that is gone.
	Config dlocktest.Config

	// Outage makes the store fail for all clients, for example by killing
	// the server. The function mend ends the outage, and returns when the
	// store can be used again. Run plays an outage about every three
	// seconds, for at most two session timeouts. Nil means no outages.
	Outage func(t *testing.T) (mend func())

	// Lagging is set for an ensemble whose servers may lag behind, and refuse a
	// try although the lock is free.
	Lagging bool

	// Histories is the number of histories, made one after the other. Zero
	// means two.
	Histories int
	// For is the duration of the faults in each history. Zero means six
	// seconds.
	For time.Duration
	// Seed seeds the choice of faults and calls. Zero means a random seed,
	// which a failure prints. In real time the same seed gives similar, not
	// identical, histories.
	Seed uint64
}

// Run makes histories on a store with four clients, saves them for package
// histories, and logs what happened. It fails the test if a history breaks one
// of the rules that this package checks.
//
// Run makes no subtests, so that the test of an in-process store may call it in
// a synctest bubble.
func Run(t *testing.T, s Store) {
	t.Helper()
	s = s.withDefaults()
	var sum figures
	for i := range s.Histories {
		h := newHistory(t, s, s.Seed+uint64(i))
		h.play()
		sum.add(h.recorder, check(t, s.Of, fmt.Sprint("seed ", h.seed), h.recorder, h.wrong.all))
	}
	t.Log(&sum)
	if sum.counts["grants"] == 0 {
		t.Error("no lock was granted, so the histories prove nothing")
	}
}

func (s Store) withDefaults() Store {
	if s.Histories == 0 {
		s.Histories = 2
	}
	if s.For == 0 {
		s.For = 6 * time.Second
	}
	if s.Seed == 0 {
		s.Seed = rand.Uint64()
	}
	if s.Config.SessionTimeout == 0 {
		s.Config.SessionTimeout = 10 * time.Second
	}
	return s
}

// queues are the queues of a history. Each client has an actor for each queue.
var queues = []string{"q", semaphore}

// semaphore is a queue in which most contenders acquire units.
const semaphore = "s"

const (
	clients     = 4
	faultPace   = 150 * time.Millisecond // longest time between faults
	outagePause = 3 * time.Second        // approximate time between outages
)

// realPace lets many calls happen within the few seconds of a history.
var realPace = pace{
	gap: 50 * time.Millisecond, brief: 50 * time.Millisecond, longer: 500 * time.Millisecond,
	deadline: 250 * time.Millisecond, shortDeadline: 6 * time.Millisecond, bound: bound,
}

// bound is the timeout for calls. A call that exceeds it counts as hanging.
const bound = 2 * time.Minute

type history struct {
	*testing.T
	*recorder
	store     Store
	connector driver.Connector
	links     []*link
	slots     []*slot
	actors    []*actor
	seed      uint64
	rand      *rand.Rand
	stop      chan struct{} // closed to stop the actors and the faults
	heals     sync.WaitGroup
	wrong     complaints

	hooks chan struct{} // full while a hook of the Config runs
}

// link is the connector of one client. It remembers the latest session, which
// the functions of the Config need.
type link struct {
	driver.Connector

	mu       sync.Mutex
	last     driver.Session
	sessions int
}

func (l *link) Connect(ctx context.Context) (driver.Session, error) {
	s, err := l.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = s
	l.sessions++
	return s, nil
}

func (l *link) begun() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sessions
}

func (l *link) session() driver.Session {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last == nil || l.last.Err() != nil {
		return nil
	}
	return l.last
}

func newHistory(t *testing.T, s Store, seed uint64) *history {
	h := &history{
		T: t, recorder: &recorder{lagging: s.Lagging}, store: s, connector: s.Config.New(t),
		seed: seed, rand: rand.New(rand.NewPCG(seed, 1)), stop: make(chan struct{}), hooks: make(chan struct{}, 1),
	}
	for i := range clients {
		h.join(i)
		// On a busy machine a session may expire at any time, without any
		// fault.
		h.cause(cause{what: "time passes on a busy machine", slot: i, told: true}, done(func() {}))
	}
	return h
}

func (h *history) join(i int) {
	l := &link{Connector: h.connector}
	s := newSlot(i, func() *dlock.Client {
		return dlock.NewClient(l, dlock.WithHostname(fmt.Sprint("web", i)), quiet())
	})
	h.links, h.slots = append(h.links, l), append(h.slots, s)
	for j, queue := range queues {
		id := 1 + i + clients*j
		h.actors = append(h.actors, &actor{
			recorder: h.recorder, pace: realPace, id: id, slot: s, sessions: l.begun, queues: []string{queue}, units: queue == semaphore,
			wrong: &h.wrong, stop: h.stop, nasty: h.nasty(i), rand: rand.New(rand.NewPCG(h.seed, uint64(99+id))), rounds: 1 << 30,
		})
		h.actors[len(h.actors)-1].longest = 4 * h.store.Config.SessionTimeout
	}
}

// play makes one history. After its faults, the queues must become empty, and
// each actor must acquire the locks.
func (h *history) play() {
	var acting, failing sync.WaitGroup
	for _, a := range h.actors {
		acting.Go(a.play)
	}
	failing.Go(func() { h.every(faultPace, h.fault) })
	if h.store.Outage != nil {
		failing.Go(func() { h.every(2*outagePause, h.outage) })
	}
	time.Sleep(h.store.For)
	close(h.stop)
	failing.Wait()
	acting.Wait()
	h.heals.Wait()
	h.rest()
	for _, s := range h.slots {
		_ = h.close(s.client())
	}
}

func (h *history) rest() {
	for _, a := range h.actors {
		a.nasty = nasty{}
	}
	for _, queue := range queues {
		h.deserted(queue)
		tryTogether(h.actors, queue)
		h.deserted(queue)
		for _, a := range h.actors {
			a.tryInTurn(queue)
		}
	}
}

func (h *history) every(longest time.Duration, play func()) {
	draw := rand.New(rand.NewPCG(h.seed, uint64(longest)))
	for {
		t := time.NewTimer(time.Duration(draw.Int64N(int64(longest))))
		select {
		case <-t.C:
			play()
		case <-h.stop:
			t.Stop()
			return
		}
	}
}

func (h *history) deserted(queue string) {
	for until := time.Now().Add(bound); ; time.Sleep(20 * time.Millisecond) {
		nodes, err := h.nodes(queue)
		if err == nil && len(nodes) == 0 {
			break
		}
		if time.Now().After(until) {
			h.wrong.add("all actors are done, but %v is left (%v)", nodes, err)
			break
		}
	}
	h.settled(queue)
}

func (h *history) nodes(queue string) ([]driver.Node, error) {
	ctx, cancel := context.WithTimeout(context.Background(), h.store.Config.SessionTimeout)
	defer cancel()
	s, err := h.connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.List(ctx, queue)
}

// Create is listed twice, to be chosen twice as often. The method nasty chooses
// among the first three, which write to the store.
var requestOps = []faults.Op{faults.OpCreate, faults.OpCreate, faults.OpDelete, faults.OpList}

func (h *history) fault() {
	i := h.target(h.rand, len(h.slots))
	c, s := h.store.Config, h.links[i].session()
	queue := queues[h.rand.IntN(len(queues))]
	switch n := h.rand.IntN(40); {
	case n == 0:
		h.removeQueue(queue)
	case n < 3:
		h.removeNode(queue)
	case n == 3:
		_ = h.slots[i].replace(h.recorder) // fails if the store cannot be reached
	case s == nil:
	case n < 6 && c.Drop != nil:
		h.hook(cause{what: "ended by the store", slot: i}, func() { c.Drop(h.T, s) })
	case n < 10:
		h.cut(i, h.duration(2*c.SessionTimeout))
	case n < 16 && c.Reset != nil:
		h.hook(told(i, "connection dropped"), func() { c.Reset(h.T, s) })
	case n == 16 || n == 17:
		if c.SilenceNotices != nil {
			h.alone(func() { c.SilenceNotices(h.T, s) }) // causes no loss, so it is not recorded
		}
	case n < 34:
		h.lose(i, requestOps[h.rand.IntN(len(requestOps))], h.rand.IntN(2) == 0)
	case n < 36 && c.DelayReplies != nil:
		h.hook(told(i, "slow"), func() { c.DelayReplies(h.T, s, h.duration(15*time.Millisecond)) })
	case n < 38 && c.Pause != nil:
		h.hook(told(i, "paused"), func() { c.Pause(h.T, s, h.duration(2*c.SessionTimeout)) })
	}
}

// told returns a cause after which the client must notice the end of its
// session before the store makes the next grant.
func told(slot int, what string) cause { return cause{what: what, slot: slot, told: true} }

func (h *history) duration(limit time.Duration) time.Duration {
	return time.Duration(h.rand.Int64N(int64(limit)))
}

func (h *history) hook(c cause, play func()) {
	h.cause(c, done(func() { h.alone(play) }))
}

func (h *history) alone(play func()) {
	h.hooks <- struct{}{}
	defer func() { <-h.hooks }()
	play()
}

func (h *history) lose(i int, op faults.Op, reply bool) {
	play, what := h.store.Config.LoseRequest, "request lost"
	if reply {
		play, what = h.store.Config.LoseReply, "reply lost"
	}
	if s := h.links[i].session(); play != nil && s != nil {
		h.hook(told(i, what), func() { play(h.T, s, op) })
	}
}

func (h *history) cut(i int, d time.Duration) {
	s := h.links[i].session()
	if s == nil || h.store.Config.CutOff == nil {
		return
	}
	h.hook(told(i, "cut off"), func() {
		heal := h.store.Config.CutOff(h.T, s)
		h.heals.Go(func() {
			time.Sleep(d)
			h.alone(heal)
		})
	})
}

func (h *history) removeNode(queue string) {
	nodes, err := h.nodes(queue)
	if err != nil || len(nodes) == 0 || h.store.Config.RemoveNode == nil {
		return
	}
	name := nodes[h.rand.IntN(min(2, len(nodes)))].Name
	h.hook(cause{what: "node removed", slot: -1, queue: queue, node: nodeOf(name)}, func() {
		h.store.Config.RemoveNode(h.T, h.connector, queue, name)
	})
}

func (h *history) removeQueue(queue string) {
	if h.store.Config.RemoveQueue != nil {
		h.hook(cause{what: "queue removed", slot: -1, queue: queue}, func() { h.store.Config.RemoveQueue(h.T, h.connector, queue) })
	}
}

func (h *history) outage() {
	limit := 2 * h.store.Config.SessionTimeout
	d := time.Duration(rand.Int64N(int64(limit)))
	h.hook(cause{what: "outage", slot: -1, told: true}, func() {
		mend := h.store.Outage(h.T)
		time.Sleep(d)
		mend()
	})
}

// nasty's functions make the client's next write fail, or cut a holder off for
// longer than its session lasts.
func (h *history) nasty(i int) nasty {
	draw := rand.New(rand.NewPCG(h.seed, uint64(200+i)))
	var mu sync.Mutex
	number := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return draw.IntN(n)
	}
	return nasty{
		write: func() { h.lose(i, requestOps[number(3)], number(2) == 0) },
		hold: func() {
			if number(2) == 0 {
				h.cut(i, 2*h.store.Config.SessionTimeout)
			}
		},
	}
}
