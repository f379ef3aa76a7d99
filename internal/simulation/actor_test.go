package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes"
)

// actor is a goroutine that uses a client's locks. It has its own random
// source, so that its actions do not depend on other actors.
type actor struct {
	run    *run
	id     int
	client *client
	rand   *rand.Rand
	host   string

	mu      sync.Mutex
	calls   int
	calling bool      // whether one of these calls is in flight
	began   time.Time // when the latest call began
}

func newActor(r *run, c *client, id int) *actor {
	a := &actor{run: r, id: id, client: c, rand: rand.New(rand.NewPCG(r.seed, uint64(100+id)))}
	// In every third seed all actors share a host name, so that their nodes get
	// the same names again after an operator removes a queue.
	if a.host = "h"; r.seed%3 != 0 {
		a.host = []string{"h", "h", "a", "b"}[c.number]
	}
	return a
}

func (a *actor) String() string { return fmt.Sprint("actor ", a.id) }

func (a *actor) chance(percent int) bool { return a.rand.IntN(100) < percent }

func (a *actor) span(limit time.Duration) time.Duration {
	return time.Duration(a.rand.Int64N(int64(limit/time.Microsecond)))*time.Microsecond + time.Duration(a.id)
}

func (a *actor) play() {
	for range 1 + a.rand.IntN(4) {
		time.Sleep(a.span(200 * time.Millisecond))
		if a.chance(8) {
			a.tryRepeatedly()
		} else {
			a.round()
		}
	}
}

func (a *actor) mutex(queue string, opts ...recipes.Option) *recipes.RWMutex {
	opts = append(opts, recipes.WithHostname(a.host), a.ownData(), recipes.WithWait(a.wait()))
	return a.client.current().RWMutex(queue, opts...)
}

// wait returns a random way of waiting. If sharing is 1, which makes a run
// repeatable, polls have no pauses, because the jitter of pauses comes from an
// unseeded random source.
func (a *actor) wait() recipes.Wait {
	switch n := a.rand.IntN(100); {
	case n < 70:
		return recipes.WatchPredecessor()
	case n < 92:
		return recipes.WatchQueue()
	case n < 97 && a.run.sharing() > 1:
		return recipes.Poll(a.span(300 * time.Millisecond))
	}
	return recipes.Poll(1)
}

type attempt struct {
	name      string
	call      func(ctx context.Context) (*recipes.Lock, error)
	try       bool
	cancelled bool          // the context may be cancelled before the grant
	limit     time.Duration // timeout given to the call; 0 for none
	queue     string
	mode      recipes.Mode
	units     int // of a semaphore; zero for a lock
}

func (a *actor) round() {
	queue := a.run.queues[a.rand.IntN(len(a.run.queues))]
	t := attempt{queue: queue, mode: recipes.Exclusive}
	ctx := context.Background()
	var opts []recipes.Option
	switch n := a.rand.IntN(100); {
	case n < 15:
		t.limit = a.span(3 * time.Second)
		c, cancel := context.WithTimeout(ctx, t.limit)
		defer cancel()
		ctx = c
	case n < 30:
		t.limit = a.span(3 * time.Second)
		opts = append(opts, recipes.WithTimeout(t.limit))
	case n < 45:
		t.limit, t.cancelled = a.span(2*time.Second), true
		c, cancel := context.WithCancel(ctx)
		defer time.AfterFunc(t.limit, cancel).Stop()
		defer cancel()
		ctx = c
	}
	m := a.mutex(queue, opts...)
	switch n := a.rand.IntN(100); {
	case n < 10:
		t.name, t.call, t.try = "try lock", m.TryLock, true
	case n < 20:
		t.name, t.call, t.try, t.mode = "try rlock", m.TryRLock, true, recipes.Shared
	case n < 60:
		t.name, t.call = "lock", m.Lock
	default:
		t.name, t.call, t.mode = "rlock", m.RLock, recipes.Shared
	}
	a.weigh(&t, opts)
	switch l := a.acquire(ctx, t); {
	case l == nil:
	case t.units > 0:
		a.useUnits(queue, l)
	default:
		a.use(m, queue, l)
	}
}

func (a *actor) tryRepeatedly() {
	queue := a.run.queues[a.rand.IntN(len(a.run.queues))]
	m := a.mutex(queue)
	for range 2 + a.rand.IntN(6) {
		t := attempt{name: "try lock", call: m.TryLock, try: true, queue: queue, mode: recipes.Exclusive}
		if l := a.acquire(context.Background(), t); l != nil {
			a.run.count("storm won")
			a.unlock(queue, l)
		}
	}
}

// slack is how long a call may take to return after its timeout or
// cancellation. It may spend 50 ms on cleaning up its node, or wait for a
// connection attempt.
const slack = 110 * time.Millisecond

// acquire makes a locking call and checks its result. It returns nil if the
// lock was not granted.
func (a *actor) acquire(ctx context.Context, t attempt) *recipes.Lock {
	began := time.Now()
	ctx = a.run.withLedger(ctx, a, t)
	a.begin()
	l, err := t.call(ctx)
	a.end()
	took := time.Since(began)
	if t.limit > 0 && took > t.limit+slack {
		a.run.fail("%v: %s on %s returned after %v, with %v to wait", a, t.name, t.queue, took, t.limit)
	}
	switch {
	case err == nil:
		a.run.granted(a, ctx, t.queue, l, t.units)
		return l
	case errors.Is(err, recipes.ErrTimeout):
		a.run.count("timeout")
		if t.limit == 0 || t.cancelled || took < t.limit {
			a.run.fail("%v: %s timed out after %v of %v: %v", a, t.name, took, t.limit, err)
		}
	case errors.Is(err, context.Canceled):
		a.run.count("cancel")
		if !t.cancelled || took < t.limit {
			a.run.fail("%v: %s was cancelled after %v of %v: %v", a, t.name, took, t.limit, err)
		}
	case errors.Is(err, recipes.ErrLocked) && t.try:
		a.run.count("locked")
	case errors.Is(err, driver.ErrUnavailable) && t.try: // a Try call does not retry failed requests
		a.run.count("try: store unavailable")
		// Two errors are allowed without a fault: Create fails while a queue
		// has used up its sequences, and a Try call gives up if an operator
		// removes its node twice.
		usedUp := strings.Contains(err.Error(), "sequences are used up")
		if !usedUp && !errors.Is(err, driver.ErrSessionEnded) && !a.client.disturbedSince(began) && a.run.removedSince(began) < 2 {
			a.run.fail("%v: %s of %s was not answered, and nothing was lost: %v", a, t.name, t.queue, err)
		}
	case errors.Is(err, recipes.ErrClosed):
		a.run.count("closed")
		if !a.run.hasClosed(a.client) {
			a.run.fail("%v: %s of a client that is open: %v", a, t.name, err)
		}
	default:
		a.run.fail("%v: %s failed without a reason: %v", a, t.name, err)
	}
	return nil
}

func (a *actor) begin() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	a.calling = true
	a.began = time.Now()
}

// callsSince returns when the actor's call in flight began, if there is one.
func (a *actor) callsSince() (began time.Time, calling bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.began, a.calling
}

func (a *actor) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calling = false
}

func (a *actor) call() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.calling {
		return 0
	}
	return a.calls
}
