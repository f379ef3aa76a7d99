package simulation

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/recipes"
)

const (
	clients   = 4
	maxSteps  = 20_000
	toldAfter = 20 * time.Second // within which a holder learns that his node was removed
)

// run is one seed.
type run struct {
	seed   uint64
	rand   *rand.Rand
	gate   *gate
	queues []string
	eyes   driver.Session // of the judge
	conns  []*connector
	faults int // left to play

	mu      sync.Mutex
	journal []string
	failure string
	held    map[*recipes.Lock]*holding
	highest map[string]int64 // exclusive token by queue
	exempt  map[int64]time.Time
	heals   []func()
}

// holding is a lock that an actor believes to hold.
type holding struct {
	lock  *recipes.Lock
	actor *actor
	queue string
	fresh bool // not judged yet
}

// constant is a back-off without chance, so that a seed repeats.
type constant struct{ n int }

func (c *constant) NextBackOff() time.Duration {
	c.n++
	return min(time.Duration(c.n)*37*time.Millisecond, time.Second)
}
func (c *constant) Reset() { c.n = 0 }

// play runs a seed and returns what went wrong and the journal. It is called in a bubble.
func play(t *testing.T, seed uint64) (failure string, journal []string) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	r := &run{
		seed: seed, rand: rnd,
		gate:    &gate{store: memdriver.New(options(rnd)...)},
		queues:  []string{"p", "q"}[:1+rnd.IntN(2)],
		faults:  rnd.IntN(16),
		held:    map[*recipes.Lock]*holding{},
		highest: map[string]int64{},
		exempt:  map[int64]time.Time{},
	}
	eyes, err := r.gate.store.Connect(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	r.eyes = eyes
	r.perform(rnd)
	_ = eyes.Close()
	time.Sleep(time.Minute) // the store drops sessions that could not say goodbye
	synctest.Wait()
	if s := r.gate.store.Stats(); r.failure == "" && s.Nodes+s.Watches+s.Sessions > 0 {
		r.fail("left in the store: %d nodes, %d watches, %d sessions", s.Nodes, s.Watches, s.Sessions)
	}
	return r.failure, r.journal
}

// options are those of the store: some roll their sequences over after a few nodes.
func options(rnd *rand.Rand) []memdriver.Option {
	if rnd.IntN(4) == 0 {
		return []memdriver.Option{memdriver.WithSequenceLimit(int64(5 + rnd.IntN(20)))}
	}
	return nil
}

// perform lets the actors play until all are done, and closes the clients.
func (r *run) perform(rnd *rand.Rand) {
	var all []*recipes.Sessions
	var playing sync.WaitGroup
	for i := range clients {
		conn := &connector{gate: r.gate, client: i, fate: r.fate}
		r.conns = append(r.conns, conn)
		c := recipes.New(conn, recipes.WithHostname(r.host(i)),
			recipes.WithBackOff(func() recipes.BackOff { return new(constant) }))
		all = append(all, c)
		for j := range r.actors() {
			id := 1 + i*10 + j
			a := &actor{run: r, id: id, client: c, rand: rand.New(rand.NewPCG(r.seed, uint64(100+id))), rounds: 1 + rnd.IntN(4)}
			playing.Go(a.play)
		}
	}
	r.until(&playing, r.step)
	r.mu.Lock()
	heals := r.heals
	r.heals = nil
	r.mu.Unlock()
	for _, heal := range heals {
		heal()
	}
	var closing sync.WaitGroup
	for _, c := range all {
		closing.Go(func() { _ = c.Close() })
	}
	r.until(&closing, r.pass)
}

// actors is how many share a client. Two of one client run at the same time now and then, in an
// order that is not the seed's: only even seeds repeat to the letter.
func (r *run) actors() int { return 1 + int(r.seed%2) }

// host names a client's nodes. In some seeds all have one name, so that a queue which is made again
// has the same names of nodes as before.
func (r *run) host(client int) string {
	if r.seed%3 == 0 {
		return "h"
	}
	return []string{"h", "h", "a", "b"}[client]
}

// until makes steps until the group is done. A group that is not done after many steps is stuck.
func (r *run) until(group *sync.WaitGroup, step func()) {
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	for range maxSteps {
		synctest.Wait()
		select {
		case <-done:
			return
		default:
		}
		step()
	}
	r.fail("no end after %d steps", maxSteps)
	for { // let the bubble end
		select {
		case <-done:
			return
		default:
			r.pass()
			synctest.Wait()
		}
	}
}

// step lets one thing happen and judges what came of it.
func (r *run) step() {
	r.judge()
	switch n := r.rand.IntN(100); {
	case n < 4 && r.faults > 0:
		r.faults--
		r.fault()
	default:
		r.pass()
	}
}

// pass lets one passage pass, or some time if there is none, and sometimes also if there is one.
func (r *run) pass() {
	ready := r.gate.ready()
	if len(ready) == 0 || r.rand.IntN(10) == 0 {
		time.Sleep(time.Duration(1+r.rand.IntN(100))*time.Millisecond + 500*time.Nanosecond)
		return
	}
	p := ready[r.rand.IntN(len(ready))]
	r.gate.take(p)
	r.note("%s %s", p.session.name, p.what)
	p.pass()
}

// ready returns the passages that may pass, in an order that does not depend on goroutines.
func (g *gate) ready() []*passage {
	g.mu.Lock()
	defer g.mu.Unlock()
	var ready []*passage
	for _, p := range g.waiting {
		if !p.session.cut.Load() {
			ready = append(ready, p)
		}
	}
	slices.SortFunc(ready, func(a, b *passage) int {
		return cmp.Or(
			strings.Compare(a.session.name, b.session.name),
			strings.Compare(a.what, b.what),
			a.number-b.number)
	})
	return ready
}

func (g *gate) take(p *passage) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = slices.DeleteFunc(g.waiting, func(q *passage) bool { return q == p })
}

// fate draws what becomes of a request. It is called by pass only.
func (r *run) fate() fate {
	switch n := r.rand.IntN(100); {
	case n < 3:
		return requestLost
	case n < 6:
		return answerLost
	case n < 8:
		return duplicated
	}
	return delivered
}

// fault plays one fault.
func (r *run) fault() {
	conn := r.conns[r.rand.IntN(len(r.conns))]
	s := conn.session()
	queue := r.queues[r.rand.IntN(len(r.queues))]
	switch n := r.rand.IntN(7); {
	case n == 4:
		r.removeNode(queue)
	case n >= 5:
		r.removeQueue(queue)
	case s == nil || s.Err() != nil:
	case n == 0:
		r.note("%s expires", s.name)
		r.gate.store.Expire(s.Session)
	case n == 1 || n == 2:
		r.cut(s)
	case n == 3:
		d := time.Duration(r.rand.IntN(15)) * time.Second
		r.note("%s is paused for %v", s.name, d)
		r.gate.store.Pause(s.Session, d)
	}
}

// cut cuts a session off for a while, perhaps for longer than it lives.
func (r *run) cut(s *session) {
	if s.cut.Swap(true) {
		return
	}
	d := time.Duration(r.rand.IntN(20_000))*time.Millisecond + 300*time.Nanosecond
	r.note("%s is cut off for %v", s.name, d)
	mend := r.gate.store.CutOff(s.Session)
	heal := func() {
		s.cut.Store(false)
		mend()
	}
	r.heals = append(r.heals, heal)
	time.AfterFunc(d, heal)
}

func (r *run) nodes(queue string) []driver.Node {
	nodes, err := r.eyes.List(context.Background(), queue)
	if err != nil {
		panic(err)
	}
	return nodes
}

func (r *run) removeNode(queue string) {
	nodes := r.nodes(queue)
	if len(nodes) == 0 {
		return
	}
	n := nodes[r.rand.IntN(len(nodes))]
	r.note("an operator removes %s %s", queue, n.Name)
	r.excuse(queue, n)
	r.gate.store.RemoveNode(queue, n.Name)
}

func (r *run) removeQueue(queue string) {
	r.note("an operator removes %s", queue)
	for _, n := range r.nodes(queue) {
		r.excuse(queue, n)
	}
	r.gate.store.RemoveQueue(queue)
}

// excuse takes down that a node was removed: its owner cannot know yet.
func (r *run) excuse(queue string, n driver.Node) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.exempt[r.gate.token(queue, n)] = time.Now()
}

func (r *run) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.journal = append(r.journal, fmt.Sprintf("%12v ", time.Since(epoch))+fmt.Sprintf(format, args...))
}

// epoch is when virtual time begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (r *run) fail(format string, args ...any) {
	msg := fmt.Sprintf(format, args...)
	r.note("FAILED: %s", msg)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.failure == "" {
		r.failure = msg
	}
}
