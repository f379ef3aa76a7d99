package history

import (
	"context"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/recipes"
)

// process is a simulated process, whose actors share one lock client.
type process struct {
	run    *run
	store  *memdriver.Store
	trace  *recipes.Trace
	number int
	faults *faults.Connector
	slot   *slot

	mu             sync.Mutex
	present        driver.Session // latest session, not wrapped by the fault injection
	session        int            // number of the session in present
	cuts           map[int]cut    // by session number
	paused         bool
	disturbedUntil time.Time // until then, faults may hide losses
	lostAt         time.Time // time of the latest lost message
	suspect        bool      // whether a fault has been recorded
}

type cut struct{ requests, replies bool }

func (r *run) newProcess(number int, store *memdriver.Store, trace *recipes.Trace) *process {
	c := &process{run: r, store: store, trace: trace, number: number, cuts: make(map[int]cut)}
	c.faults = faults.New(c, r.gate.plan(c))
	c.slot = newSlot(number, c.open)
	return c
}

// Connect connects to the store itself. It is called by the connector in
// c.faults, which adds the faults.
func (c *process) Connect(ctx context.Context) (driver.Session, error) {
	s, err := c.store.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.present = s
	if c.run.wrap != nil {
		return c.run.wrap(c.store, s), nil
	}
	return s, nil
}

func (c *process) open() *recipes.Client {
	backOffs := 0
	var mu sync.Mutex
	return recipes.NewClient(c.faults, recipes.WithTrace(c.trace), recipes.WithBackOff(func() recipes.BackOff {
		mu.Lock()
		defer mu.Unlock()
		backOffs++
		return &constant{odd: time.Duration(c.number*1000 + backOffs%1000)}
	}))
}

// constant is a back-off without jitter or equal durations, so that runs are
// repeatable.
type constant struct {
	n   int
	odd time.Duration
}

func (c *constant) NextBackOff() time.Duration {
	c.n++
	return min(time.Duration(c.n)*37*time.Millisecond, time.Second) + c.odd
}
func (c *constant) Reset() { c.n = 0 }

func (c *process) liveSession() (s driver.Session, number int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.present == nil || c.paused || c.present.Err() != nil {
		return nil, 0
	}
	return c.present, c.session
}

func (c *process) connected(number int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session = number
}

func (c *process) isCut(session int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, is := c.cuts[session]
	return is
}

func (c *process) setCut(session int, kind cut) {
	c.suspected()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cuts[session] = kind
}

func (c *process) heal(session int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.cuts, session)
	c.disturbedUntil = laterOf(c.disturbedUntil, time.Now())
}

func (c *process) setPaused(paused bool) (changed bool) {
	c.suspected()
	c.mu.Lock()
	defer c.mu.Unlock()
	changed = c.paused != paused
	c.paused = paused
	return changed
}

func (c *process) isPaused() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.paused
}

func (c *process) holdsBack(r faults.Request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	cut := c.cuts[r.Session]
	if r.Stage == faults.StageRequest {
		return c.paused || cut.requests
	}
	return c.paused || cut.replies
}

// disturb records until when a fault may hide losses from the client.
func (c *process) disturb(until time.Time) {
	c.suspected()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disturbedUntil = laterOf(c.disturbedUntil, until)
}

func (c *process) suspected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.suspect {
		c.suspect = true
		c.run.record.begin(cause{what: "faults", slot: c.number, told: true})
	}
}

func (c *process) loses() {
	c.suspected()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lostAt = time.Now()
}

// disturbedSince includes the second before t, because calls may join older
// connection attempts.
func (c *process) disturbedSince(t time.Time) bool {
	if !c.calmSince(t).Equal(t) {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lostAt.After(t.Add(-time.Second))
}

// calmSince returns t or the end of the latest fault, whichever is later.
func (c *process) calmSince(t time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.cuts) > 0 || c.paused {
		return time.Now()
	}
	return laterOf(c.disturbedUntil, t)
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
