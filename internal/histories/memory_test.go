package histories

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
)

var (
	seeds = flag.Int("seeds", 300, "how many histories to make in memory")
	first = flag.Uint64("seed", 1, "the first seed")
)

// spoiler wraps a session in a broken one. The histories must show that it is
// broken.
type spoiler = func(*memdriver.Store, driver.Session) driver.Session

type plan struct {
	clients, actors, rounds, faults int
	calm                            bool    // whether there are no faults, except that clients are closed
	closes                          int     // percentage of the faults that close a client
	removals                        int     // minimum percentage of the faults that remove a queue
	units                           bool    // whether the only queue is that of the semaphore
	spoil                           spoiler // breaks the driver's sessions; nil for a sound driver
}

type connector struct {
	store *memdriver.Store
	spoil spoiler
	slow  func() time.Duration

	mu   sync.Mutex
	last driver.Session
}

func (c *connector) Connect(ctx context.Context) (driver.Session, error) {
	s, err := c.store.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = s
	c.store.Faults().Delay(s, c.slow())
	if c.spoil != nil {
		return c.spoil(c.store, s), nil
	}
	return s, nil
}

func (c *connector) session() driver.Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil || c.last.Err() != nil {
		return nil
	}
	return c.last
}

// memory is a history on a store in memory, in virtual time.
type memory struct {
	*recorder
	store  *memdriver.Store
	conns  []*connector
	slots  []*slot
	queues []string
	rand   *rand.Rand
	heals  sync.WaitGroup
	wrong  *complaints
}

// grace is how long a node may outlive the call that made it if no fault
// happens.
const grace = 5 * time.Second

func (p plan) play(t testing.TB, seed uint64) (*recorder, *complaints) {
	r := rand.New(rand.NewPCG(seed, 1))
	w := &memory{
		recorder: new(recorder), store: memdriver.New(), rand: r, queues: []string{"p", "q"}[:1+r.IntN(2)], wrong: new(complaints),
	}
	if p.calm {
		w.grace = grace
	}
	if p.units {
		w.queues = []string{semaphore}
	}
	var playing sync.WaitGroup
	var actors []*actor
	for i := range p.clients {
		c := &connector{store: w.store, spoil: p.spoil, slow: slowness(seed, i)}
		w.conns = append(w.conns, c)
		options := []dlock.Option{dlock.WithHostname(host(seed, i)), quiet()}
		w.slots = append(w.slots, newSeat(i, func() *dlock.Client { return dlock.NewClient(c, options...) }))
		for j := range p.actors {
			id := 1 + i*p.actors + j
			a := &actor{
				recorder: w.recorder, id: id, slot: w.slots[i], queues: w.queues, wrong: w.wrong,
				rand: rand.New(rand.NewPCG(seed, uint64(1000+id))), rounds: p.rounds, unit: 100 * time.Millisecond, long: 15 * time.Second,
			}
			actors = append(actors, a)
			playing.Go(a.play)
		}
	}
	w.trouble(&playing, p)
	w.heals.Wait()
	w.rest(actors)
	for _, s := range w.slots {
		_ = w.close(s.client())
	}
	return w.recorder, w.wrong
}

// rest ends a history. It waits until the queues are empty, lets all actors try
// each lock at the same time, waits again, and lets each actor try alone, which
// must succeed.
func (w *memory) rest(actors []*actor) {
	time.Sleep(bound) // until sessions that are cut off have ended and delayed messages have arrived
	for _, queue := range w.queues {
		w.deserted(queue)
		tryTogether(actors, queue)
		time.Sleep(grace)
		w.deserted(queue)
		for _, a := range actors {
			a.tryInTurn(queue)
		}
	}
}

func (w *memory) deserted(queue string) {
	if nodes, _ := w.look(queue); len(nodes) > 0 {
		w.wrong.add("%s: all actors are done, but %v is left", queue, nodes)
	}
	w.settled(queue)
}

func host(seed uint64, client int) string {
	if alike(seed) {
		return "web"
	}
	return fmt.Sprint("web", client)
}

func alike(seed uint64) bool { return seed%3 == 0 }

// slowness returns a function that draws the latency of a session's requests at
// random.
func slowness(seed uint64, client int) func() time.Duration {
	r := rand.New(rand.NewPCG(seed, uint64(100+client)))
	return func() time.Duration {
		return time.Duration(r.Int64N(int64(20*time.Millisecond))) + time.Duration(client)
	}
}

func (w *memory) trouble(playing *sync.WaitGroup, p plan) {
	done := make(chan struct{})
	go func() { playing.Wait(); close(done) }()
	for range p.faults {
		t := time.NewTimer(time.Duration(w.rand.Int64N(int64(300 * time.Millisecond))))
		select {
		case <-t.C:
			w.event(p)
		case <-done:
			t.Stop()
			return
		}
	}
	<-done
}

func (w *memory) event(p plan) {
	switch n := w.rand.IntN(100); {
	case n < p.closes:
		if err := w.slots[w.rand.IntN(len(w.slots))].replace(w.recorder); err != nil && p.calm {
			w.wrong.add("close: %v", err)
		}
	case p.calm:
	case n < p.closes+p.removals:
		w.removeQueue(w.queues[w.rand.IntN(len(w.queues))])
	default:
		w.fault()
	}
}

func (w *memory) fault() {
	i := w.target(w.rand, len(w.conns))
	s := w.conns[i].session()
	queue := w.queues[w.rand.IntN(len(w.queues))]
	of := func(what string) cause { return cause{what: what, slot: i, told: true} }
	switch n := w.rand.IntN(17); {
	case n == 16, n == 0:
		w.removeQueue(queue)
	case n < 3:
		w.removeNode(queue)
	case s == nil:
	case n < 5:
		w.cause(of("expired"), done(func() { w.store.Faults().Expire(s) }))
	case n < 8:
		w.cut(of("cut off"), s)
	case n < 10:
		d := time.Duration(w.rand.Int64N(int64(15 * time.Second)))
		w.cause(of("paused for "+d.String()), done(func() { w.store.Faults().Pause(s, d) }))
	default:
		op := losable[w.rand.IntN(len(losable))]
		if w.rand.IntN(2) == 0 {
			w.store.Faults().LoseReply(s, op)
		} else {
			w.store.Faults().LoseRequest(s, op)
		}
	}
}

var losable = []faults.Op{
	faults.OpCreate, faults.OpCreate, faults.OpDelete, faults.OpDelete, faults.OpReplace, faults.OpReplace,
	faults.OpList, faults.OpWatch, faults.OpRead, faults.OpCleanUp, faults.OpHeartbeat,
}

func (w *memory) cut(c cause, s driver.Session) {
	d := time.Duration(w.rand.Int64N(int64(14 * time.Second)))
	w.cause(c, done(func() {
		heal := w.store.Faults().CutOff(s)
		w.heals.Go(func() {
			time.Sleep(d)
			heal()
		})
	}))
}

// removeNode removes one of the first nodes of a queue, whose contender may
// hold the lock.
func (w *memory) removeNode(queue string) {
	nodes, _ := w.look(queue)
	if len(nodes) == 0 {
		return
	}
	name := nodes[w.rand.IntN(min(3, len(nodes)))].Name
	w.cause(cause{what: "node removed", slot: -1, queue: queue, node: nodeOf(name)}, done(func() { w.store.Faults().RemoveNode(queue, name) }))
}

func (w *memory) removeQueue(queue string) {
	_, last := w.look(queue)
	w.cause(cause{what: "queue removed", slot: -1, queue: queue, upTo: last}, done(func() { w.store.Faults().RemoveQueue(queue) }))
}

func (w *memory) look(queue string) (nodes []driver.Node, last int64) {
	ctx := context.Background()
	session, err := w.store.Connect(ctx)
	if err != nil {
		return nil, 0
	}
	defer session.Close()
	nodes, err = session.List(ctx, queue)
	if err != nil || len(nodes) == 0 {
		return nil, 0
	}
	info, err := driver.Inspect(session).Read(ctx, queue, nodes[len(nodes)-1].Name)
	if err != nil {
		return nodes, 0
	}
	return nodes, info.Token
}

func (p plan) one(t *testing.T, seed uint64) (r *recorder, wrong []string) {
	synctest.Test(t, func(t *testing.T) {
		var w *complaints
		r, w = p.play(t, seed)
		wrong = w.all
	})
	return r, wrong
}

func TestHistoriesInMemoryAreLinearizable(t *testing.T) {
	var next atomic.Uint64
	var sum figures
	next.Store(*first)
	last := *first + uint64(*seeds)
	began := time.Now()
	t.Run("all", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint("worker", i), func(t *testing.T) {
				t.Parallel()
				for seed := next.Add(1) - 1; seed < last && !t.Failed(); seed = next.Add(1) - 1 {
					p := plan{clients: 2 + int(seed%4), actors: 1 + int(seed/4%2), rounds: 8, faults: 40, closes: 5, calm: seed%5 == 0}
					if alike(seed) {
						p.removals = 30
					}
					r, wrong := p.one(t, seed)
					title := fmt.Sprintf("seed %d (again: -run InMemory -seeds 1 -seed %d)", seed, seed)
					sum.add(r, check(t, "memory", title, r, wrong))
				}
			})
		}
	})
	t.Logf("%v, %v", &sum, time.Since(began).Round(time.Millisecond))
	if *seeds >= 100 {
		sum.complete(t)
	}
}

func TestHistoriesOfSemaphoresAreLinearizable(t *testing.T) {
	var sum figures
	for seed := *first; seed < *first+uint64(*seeds) && !t.Failed(); seed++ {
		p := plan{clients: 2 + int(seed%4), actors: 2, rounds: 8, faults: 40, closes: 5, calm: seed%3 == 0, units: true}
		r, wrong := p.one(t, seed)
		sum.add(r, check(t, "semaphores", fmt.Sprintf("seed %d (again: -run Semaphores -seeds 1 -seed %d)", seed, seed), r, wrong))
	}
	t.Log(&sum)
	require.NotZero(t, sum.counts["grants of units"])
}
