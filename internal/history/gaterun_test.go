package history

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

const maxSteps = 20_000

// run is a history in virtual time. It checks all calls against the store's
// state.
type run struct {
	journal

	record       *recorder
	saved        *Record // the record of the finished run
	seed         uint64
	rand         *rand.Rand
	store        *memdriver.Store
	wrap         spoiler // wraps sessions of the store; may be nil
	gate         *gate
	queues       []string
	judgeSession driver.Session // used by the checks; no fault hits it
	processes    []*process
	actors       []*actor
	faults       int
	bare         bool // whether sessions have no optional methods

	passing *message         // message delivered in this step, or nil
	armed   map[watchKey]int // by watch: step when its reply was delivered
	resume  int              // step when the paused client resumes, or 0
	warned  []*possession    // locks of a closing client, checked by judgeClose
	closing sync.WaitGroup
	heals   []func()
	inject  func() // injects a fault
	step    func() // called before each step; nil for none

	mu       sync.Mutex
	held     map[*handle]*possession
	highest  map[string]int64          // highest exclusive token granted in each queue
	removed  map[int64]removal         // nodes removed by an operator, by token
	doubts   map[int64]bool            // by token: removals or renames without a reply
	nodeless map[*actor]nodelessWaiter // calls that wait although their node was removed
	ledgers  []*ledger                 // one for each call
	free     map[int64]time.Time       // by waiter's token: when enough units became free
}

var virtualPace = pace{
	gap: 200 * time.Millisecond, brief: 200 * time.Millisecond, longer: 4 * time.Second, longest: 2 * time.Minute,
	deadline: 3 * time.Second, shortDeadline: 20 * time.Millisecond,
}

func play(t *testing.T, seed uint64, wrap spoiler) *run {
	rnd := rand.New(rand.NewPCG(seed, 1))
	r := &run{
		seed: seed, rand: rnd,
		store:    memdriver.New(options(rnd)...),
		armed:    make(map[watchKey]int),
		wrap:     wrap,
		gate:     &gate{},
		queues:   []string{"p", "q"}[:1+rnd.IntN(2)],
		faults:   rnd.IntN(20),
		record:   new(recorder),
		held:     map[*handle]*possession{},
		highest:  map[string]int64{},
		removed:  map[int64]removal{},
		doubts:   map[int64]bool{},
		nodeless: map[*actor]nodelessWaiter{},
	}
	r.record.watch, r.inject = r, r.fault
	if r.bare = rnd.IntN(6) == 0 && wrap == nil; r.bare {
		r.wrap = func(_ *memdriver.Store, s driver.Session) driver.Session { return bare{s} }
	}
	judgeSession, err := r.store.Connect(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	r.judgeSession = judgeSession
	r.perform()
	_ = judgeSession.Close()
	r.judgeEmptiness()
	return r
}

// bare hides the optional methods of a session.
type bare struct{ driver.Session }

func options(rnd *rand.Rand) []memdriver.Option {
	if rnd.IntN(4) == 0 {
		return []memdriver.Option{memdriver.WithSequenceLimit(int64(5 + rnd.IntN(20)))}
	}
	return nil
}

func (r *run) perform() {
	var playing sync.WaitGroup
	for i := range clients {
		c := r.newProcess(i, r.store, r.hooks())
		r.processes = append(r.processes, c)
		for j := range r.sharing() {
			a := r.newActor(c, 1+i*10+j)
			r.actors = append(r.actors, a)
			playing.Go(a.play)
		}
	}
	r.until(&playing)
	r.closeAll()
}

func (r *run) closeAll() {
	for i, c := range r.processes {
		r.closing.Go(func() {
			// At the same instant, the seed would not decide which client
			// closes first.
			time.Sleep(time.Duration(i))
			_ = r.record.close(c.slot.client())
		})
	}
	r.until(&r.closing)
	r.healAll()
}

func (r *run) newActor(c *process, id int) *actor {
	a := &actor{
		recorder: r.record, pace: virtualPace, id: id, slot: c.slot, queues: r.queues, units: r.units(), values: !r.bare, alone: r.sharing() == 1,
		rand: rand.New(rand.NewPCG(r.seed, uint64(100+id))), wrong: &r.complaints,
	}
	a.rounds = 1 + a.rand.IntN(4)
	// With one host name, nodes get earlier names again after an operator
	// removes the queue.
	host := "h"
	if r.seed%3 != 0 {
		host = []string{"h", "h", "a", "b"}[c.number]
	}
	// The checks recognize the actor of a node by the node's data.
	a.options = []dlock.Option{dlock.WithHostname(host), dlock.WithData([]byte(a.String()))}
	return a
}

func (r *run) units() bool { return r.seed%16 == 12 || r.seed%16 == 13 }

// sharing returns the number of actors per client: one in even seeds, which
// must repeat.
func (r *run) sharing() int { return 1 + int(r.seed%2) }

func (r *run) until(group *sync.WaitGroup) {
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	for range maxSteps {
		synctest.Wait()
		r.judge()
		if r.step != nil {
			r.step()
		}
		select {
		case <-done:
			return
		default:
		}
		r.next()
	}
	r.fail("no end after %d steps", maxSteps)
	r.abort()
	<-done
}

func (r *run) next() {
	r.gate.next()
	r.passing = nil
	if r.rand.IntN(100) < 4 && r.faults > 0 {
		r.faults--
		r.inject()
		return
	}
	ready := r.gate.ready()
	if r.resume > 0 && (len(ready) == 0 || r.gate.step >= r.resume) {
		r.wakeUp()
		return
	}
	// Time must not pass during a pause, which has already advanced the clock.
	if r.resume == 0 && (len(ready) == 0 || r.rand.IntN(10) == 0) {
		time.Sleep(time.Duration(1+r.rand.IntN(100))*time.Millisecond + 500*time.Nanosecond)
		return
	}
	r.pass(ready[r.rand.IntN(len(ready))])
}

func (r *run) abort() {
	r.healAll()
	r.wakeUp()
	r.gate.openForGood()
	for _, c := range r.processes {
		go func() { _ = c.slot.client().locks.Close() }()
	}
}
