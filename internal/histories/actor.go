package histories

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes"
)

// bound is the timeout for calls. A call that exceeds it counts as hanging.
const bound = 2 * time.Minute

// slot is the place of a client in a history. When a client is closed, a new
// one takes over its slot, and the actors of the slot go on with that.
type slot struct {
	number int
	open   func() *dlock.Client

	mu  sync.Mutex
	now *client
}

func newSeat(number int, open func() *dlock.Client) *slot {
	s := &slot{number: number, open: open}
	s.now = s.opened()
	return s
}

func (s *slot) opened() *client { return &client{slot: s.number, locks: s.open()} }

func (s *slot) client() *client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// replace closes the client of a slot and opens a new one. While the client is
// closing, the actors go on calling it, which tests that a closed client
// refuses calls.
func (s *slot) replace(r *recorder) error {
	err := r.close(s.client())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.opened()
	return err
}

func quiet() dlock.Option { return dlock.WithLogger(slog.New(slog.DiscardHandler)) }

// actor is a goroutine that acquires and releases locks of a client at random.
// It has its own random source.
type actor struct {
	*recorder
	id     int
	slot   *slot
	queues []string
	rand   *rand.Rand
	rounds int
	// closed to stop the actor early; may be nil
	stop  <-chan struct{}
	unit  time.Duration // approximate time for which a lock is held
	long  time.Duration // duration of an occasional longer hold, during which a disconnected session ends
	wrong *complaints
	nasty nasty
}

// nasty holds functions that inject faults at the moments when they do the most
// harm. Both may be nil.
type nasty struct {
	write func() // called just before a call that writes to the store
	hold  func() // called just before the actor holds a lock for long
}

func (a *actor) perhaps(happens func()) {
	if happens != nil && a.chance(8) {
		happens()
	}
}

// complaints collects descriptions of calls that broke a rule.
type complaints struct {
	mu  sync.Mutex
	all []string
}

func (c *complaints) add(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, fmt.Sprintf(format, args...))
}

func (c *complaints) any() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all) > 0
}

func (a *actor) chance(percent int) bool { return a.rand.IntN(100) < percent }

func (a *actor) span(limit time.Duration) time.Duration {
	return time.Duration(a.rand.Int64N(int64(limit))) + time.Duration(a.id)
}

func (a *actor) play() {
	for range a.rounds {
		time.Sleep(a.span(2 * a.unit))
		select {
		case <-a.stop:
			return
		default:
		}
		if a.wrong.any() {
			return // the lock is broken, and further calls would only hang
		}
		a.round()
	}
}

var waits = []recipes.Wait{recipes.WatchPredecessor(), recipes.WatchPredecessor(), recipes.WatchQueue(), recipes.Poll(50 * time.Millisecond)}

func (a *actor) round() {
	try := &attempt{client: a.slot.client(), queue: a.queues[a.rand.IntN(len(a.queues))]}
	closing := false
	a.note(func() { closing = try.client.closed != nil })
	if closing && a.chance(80) {
		return // a few calls are enough to test that a closing client refuses them
	}
	if h := a.contend(context.Background(), try); h != nil {
		a.use(h, 0)
	}
}

func (a *actor) contend(ctx context.Context, at *attempt) *handle {
	at.actor, at.mode, at.try = a.id, dlock.Exclusive, a.chance(15)
	if a.chance(45) {
		at.mode = dlock.Shared
	}
	if at.queue == semaphore && !a.chance(20) {
		at.mode, at.units = dlock.Shared, 1+a.rand.IntN(Units)
	}
	if at.queue == semaphore && at.within != nil {
		at.try = true // it may be no re-entry, and would wait for its own client
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	options := []dlock.Option{dlock.WithWait(waits[a.rand.IntN(len(waits))]), dlock.WithTrace(a.trace(at))}
	timeLimit := 10 * a.unit
	if a.chance(50) {
		timeLimit = a.unit / 4 // short enough to expire while a request is in flight
	}
	switch n := a.rand.IntN(10); {
	case n < 2:
		defer time.AfterFunc(a.span(timeLimit), func() { a.cancel(at, cancel) }).Stop()
	case n < 3:
		at.limited = true
		options = append(options, dlock.WithTimeout(a.span(timeLimit)))
	}
	h := a.call(ctx, at, options...)
	if errors.Is(at.err, context.DeadlineExceeded) && ctx.Err() == context.DeadlineExceeded {
		a.wrong.add("%v: nothing for %v", at, bound)
	}
	return h
}

func (a *actor) call(ctx context.Context, at *attempt, options ...dlock.Option) *handle {
	at.began = time.Now()
	m := at.client.locks.RWMutex(at.queue, options...)
	var l dlock.Locker = m
	switch {
	case at.units > 0:
		l = at.client.locks.Semaphore(at.queue, Units, options...).Locker(at.units)
	case at.mode == dlock.Shared:
		l = m.RLocker()
	}
	take := l.Lock
	if at.try {
		take = l.TryLock
	}
	a.perhaps(a.nasty.write)
	return a.take(at, func() (*dlock.Lock, error) { return take(ctx) })
}

func (a *actor) trace(at *attempt) *recipes.Trace {
	return &recipes.Trace{
		Queued:   func(_ context.Context, i recipes.QueuedInfo) { a.queuedAs(at, i.Place.Token) },
		Retrying: func(context.Context, recipes.RetryingInfo) { a.note(func() { at.retried = true }) },
	}
}

// use keeps a lock for a while and then unlocks it. Sometimes it also re-enters
// or downgrades the lock.
func (a *actor) use(h *handle, depth int) {
	ctx := h.lock.Context(context.Background())
	held := a.holdAndCheck(h)
	var inside sync.WaitGroup
	switch {
	case !held && a.chance(50): // a re-entry into a lost lock must report the loss as well
		if again := a.contend(context.WithoutCancel(ctx), &attempt{client: h.client, queue: h.queue, within: h}); again != nil {
			a.giveBack(again)
		}
	case depth < 2 && a.chance(30):
		a.again(ctx, h, depth, &inside)
	}
	if held && h.units == 0 && a.chance(30) {
		a.lower(h)
		a.holdAndCheck(h)
	}
	a.giveBack(h)
	inside.Wait()
	// Only the outermost Unlock ends the contexts of a lock, so do not check
	// them after a re-entry.
	if depth == 0 && a.chance(10) {
		a.afterwards(ctx, h)
	}
}

// again re-enters the lock with the context ctx, sometimes from another
// goroutine.
func (a *actor) again(ctx context.Context, h *handle, depth int, inside *sync.WaitGroup) {
	b := *a
	b.id, b.rand = 10*a.id+depth, rand.New(rand.NewPCG(a.rand.Uint64(), 2))
	enter := func() {
		if again := b.contend(ctx, &attempt{client: h.client, queue: h.queue, within: h}); again != nil {
			b.use(again, depth+1)
		}
	}
	if a.chance(50) {
		inside.Go(enter)
		a.holdAndCheck(h)
	} else {
		enter()
	}
}

func (a *actor) afterwards(ctx context.Context, h *handle) {
	if ctx.Err() == nil {
		a.wrong.add("#%d.%d: its context goes on after Unlock", h.id, h.number)
	}
	if err := h.lock.Unlock(); !errors.Is(err, dlock.ErrNotHeld) && !errors.Is(err, dlock.ErrLost) {
		a.wrong.add("#%d.%d: a second Unlock: %v", h.id, h.number, err)
	}
	if again := a.contend(context.WithoutCancel(ctx), &attempt{client: h.client, queue: h.queue, within: h}); again != nil {
		a.giveBack(again)
	}
}

func (a *actor) holdAndCheck(h *handle) bool {
	limit, looks := a.unit, 1+a.rand.IntN(4)
	switch n := a.rand.IntN(100); {
	case n < 20:
		limit = 10 * a.unit
	case n < 25:
		limit, looks = a.long, 4
		if a.nasty.hold != nil {
			a.nasty.hold()
		}
	}
	for range looks {
		t := time.NewTimer(a.span(limit / 2))
		select {
		case <-t.C:
		case <-h.lock.Lost():
		}
		t.Stop()
		if !a.ask(a.id, h) {
			a.checkLossSignals(h)
			return false
		}
	}
	return true
}

// checkLossSignals requires that, after a loss, Lost is closed and the contexts
// of the lock end with ErrLost.
func (a *actor) checkLossSignals(h *handle) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	select {
	case <-h.lock.Lost():
	case <-ctx.Done():
		a.wrong.add("#%d.%d: lost, but Lost does not close", h.id, h.number)
	}
	if inside := h.lock.Context(context.Background()); inside.Err() == nil || !errors.Is(context.Cause(inside), dlock.ErrLost) {
		a.wrong.add("#%d.%d: lost, but its context: %v", h.id, h.number, context.Cause(inside))
	}
}

func (a *actor) lower(h *handle) {
	a.ended(h, "downgrade", a.downgrade(h, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), a.span(5*a.unit))
		defer cancel()
		return h.lock.Downgrade(ctx)
	}))
	a.ask(a.id, h)
}

func (a *actor) giveBack(h *handle) {
	a.perhaps(a.nasty.write)
	a.ended(h, "unlock", a.unlock(h))
}

// ended records a complaint if err is not an error that Unlock or Downgrade may
// return.
func (a *actor) ended(h *handle, call string, err error) {
	closing := false
	a.note(func() { closing = h.client.closed != nil })
	switch {
	case err == nil, errors.Is(err, dlock.ErrLost), errors.Is(err, driver.ErrUnavailable):
	case closing && errors.Is(err, dlock.ErrClosed):
	default:
		a.wrong.add("#%d.%d: %s: %v", h.id, h.number, call, err)
	}
}

// tryInTurn calls TryLock, TryRLock and TryAcquire at the end of a history, when
// no fault happens and no other call is in flight. All must succeed.
func (a *actor) tryInTurn(queue string) {
	for _, at := range []*attempt{{mode: dlock.Exclusive}, {mode: dlock.Shared}, {mode: dlock.Shared, units: Units}} {
		at.actor, at.client, at.queue, at.try = a.id, a.slot.client(), queue, true
		if a.lagging {
			a.informed(at)
		} else {
			a.quickly(at)
		}
	}
}

func tryTogether(actors []*actor, queue string) {
	var trying sync.WaitGroup
	for _, a := range actors {
		trying.Go(func() {
			a.quickly(&attempt{actor: a.id, client: a.slot.client(), queue: queue, mode: dlock.Exclusive, try: true})
		})
	}
	trying.Wait()
}

func (a *actor) quickly(at *attempt) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	if h := a.call(ctx, at, dlock.WithTrace(a.trace(at))); h != nil {
		a.ask(a.id, h)
		a.giveBack(h)
	}
}

// informed tries the lock after it has acquired and kept another one. On an
// ensemble, the client's server may lag behind and wrongly refuse the try; a
// write brings it up to date.
func (a *actor) informed(at *attempt) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	at.synced = a.tick()
	other, err := at.client.locks.RWMutex("elsewhere").Lock(ctx)
	if err != nil {
		a.wrong.add("%v: in the end: %v", at, err)
		return
	}
	a.quickly(at)
	// If the client's session has ended, its new session may be on another
	// server that lags behind.
	if other.Err() != nil {
		a.note(func() { at.synced = 0 })
	}
	_ = other.Unlock()
}
