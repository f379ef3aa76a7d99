package history

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

// slot holds a client, and its successor once that client is closed.
type slot struct {
	number int
	open   func() *dlock.Client

	mu  sync.Mutex
	now *client
}

func newSlot(number int, open func() *dlock.Client) *slot {
	s := &slot{number: number, open: open}
	s.renew()
	return s
}

func (s *slot) client() *client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// renew returns the previous client, which the caller must close.
func (s *slot) renew() (old *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, s.now = s.now, &client{slot: s.number, locks: s.open()}
	return old
}

// replace closes the client of a slot and opens a new one. Meanwhile the actors
// keep calling the closed client, which must refuse.
func (s *slot) replace(r *recorder) error {
	err := r.close(s.client())
	s.renew()
	return err
}

func quiet() dlock.Option { return dlock.WithLogger(slog.New(slog.DiscardHandler)) }

// actor acquires and releases locks at random. Its own random source makes it
// independent of other actors.
type actor struct {
	*recorder
	pace
	id       int
	slot     *slot
	sessions func() int // counts the sessions begun; may be nil
	queues   []string
	units    bool           // most calls are for semaphore units
	values   bool           // whether the store keeps values, which Once needs
	alone    bool           // whether no other goroutine uses the client
	options  []dlock.Option // used for every lock
	rand     *rand.Rand
	rounds   int
	stop     <-chan struct{} // closed to stop early; may be nil
	wrong    *complaints
	nasty    nasty
}

// pace sets roughly how long an actor pauses, holds a lock and waits for one.
type pace struct {
	gap                     time.Duration // between two rounds
	brief, longer, longest  time.Duration // hold times: usual, occasional, rare
	deadline, shortDeadline time.Duration // of calls; shortDeadline may interrupt a request
	bound                   time.Duration // longer calls count as hanging; 0 for none
}

// nasty holds functions that inject faults at the moments when they do the most
// harm. Both may be nil.
type nasty struct {
	write func() // called just before a write to the store
	hold  func() // called just before a long hold
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

func (a *actor) String() string { return fmt.Sprint("actor ", a.id) }

func (a *actor) chance(percent int) bool { return a.rand.IntN(100) < percent }

// span returns a random duration. Two actors never get the same one, so that
// their timers do not fire at the same instant.
func (a *actor) span(limit time.Duration) time.Duration {
	return time.Duration(a.rand.Int64N(int64(limit/time.Microsecond)))*time.Microsecond + time.Duration(a.id)
}

func (a *actor) play() {
	for range a.rounds {
		time.Sleep(a.span(a.gap))
		select {
		case <-a.stop:
			return
		default:
		}
		if a.wrong.any() {
			return // the lock is broken; calls would only hang
		}
		a.round()
	}
}

func (a *actor) round() {
	at := &attempt{client: a.slot.client(), queue: a.queues[a.rand.IntN(len(a.queues))]}
	closing := false
	a.note(func() { closing = at.client.closed != nil })
	switch {
	case closing && a.chance(80):
		return // a few calls suffice to check the refusal
	case a.chance(8):
		for range 2 + a.rand.IntN(6) {
			a.quickly(&attempt{queue: at.queue, mode: dlock.Exclusive, try: true})
		}
		return
	}
	if h := a.contend(context.Background(), at); h != nil {
		a.use(h, 0)
	}
}

func (a *actor) draw(at *attempt) {
	at.mode, at.try = dlock.Exclusive, a.chance(17)
	switch n := a.rand.IntN(100); {
	case a.units && n < 75:
		at.mode, at.units = dlock.Shared, 1+a.rand.IntN(Units)
	case n%2 == 0:
		at.mode = dlock.Shared
	case at.try || at.within != nil:
	case n < 20:
		at.campaign = true
	case n < 50 && a.values:
		at.tick = time.Now().Truncate(time.Minute)
	}
	if a.units && at.within != nil {
		at.try = true // else the actor could wait for itself
	}
}

func (a *actor) contend(ctx context.Context, at *attempt) *handle {
	a.draw(at)
	if a.bound > 0 {
		bounded, cancel := context.WithTimeout(ctx, a.bound)
		defer cancel()
		ctx = bounded
	}
	limit := a.deadline
	if a.chance(25) {
		limit = a.shortDeadline
	}
	limit = a.span(limit)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	within := ctx
	var options []dlock.Option
	switch n := a.rand.IntN(100); {
	case n < 15:
		at.limit, at.limited = limit, true
		limited, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		within = limited
	case n < 30:
		at.limit, at.limited = limit, true
		options = append(options, dlock.WithTimeout(limit))
	case n < 45:
		at.limit = limit
		defer time.AfterFunc(limit, func() { a.cancel(at, cancel) }).Stop()
	}
	h := a.call(within, at, options...)
	if errors.Is(at.err, context.DeadlineExceeded) && ctx.Err() == context.DeadlineExceeded {
		a.wrong.add("%v: nothing for %v", at, a.bound)
	}
	return h
}

// wait returns a random way of waiting. A lone actor polls without pauses,
// because jitter would make runs differ.
func (a *actor) wait() recipes.Wait {
	switch n := a.rand.IntN(100); {
	case n < 70:
		return recipes.WatchPredecessor()
	case n < 92:
		return recipes.WatchQueue()
	case a.alone:
		return recipes.Poll(1)
	}
	return recipes.Poll(a.span(2 * a.gap))
}

func (a *actor) call(ctx context.Context, at *attempt, options ...dlock.Option) *handle {
	at.actor, at.began = a.id, time.Now()
	options = append(append(options, a.options...), dlock.WithWait(a.wait()), dlock.WithTrace(a.trace(at)))
	m := at.client.locks.RWMutex(at.queue, options...)
	var l dlock.Locker = m
	switch {
	case at.units > 0:
		l = at.client.locks.Semaphore(at.queue, Units, options...).Locker(at.units)
	case at.mode == dlock.Shared:
		l = m.RLocker()
	}
	take := l.Lock
	switch {
	case at.try:
		take = l.TryLock
	case at.campaign:
		take = at.client.locks.Election(at.queue, options...).Campaign
	case !at.tick.IsZero():
		take = func(ctx context.Context) (*dlock.Lock, error) { return at.once(ctx, m) }
	}
	a.perhaps(a.nasty.write)
	if a.watch != nil {
		ctx = a.watch.calling(ctx, at)
	}
	if a.sessions != nil { // an older session's node may block the call
		before := a.sessions()
		defer func() { a.note(func() { at.retried = at.retried || a.sessions() > before }) }()
	}
	return a.take(ctx, at, func() (*dlock.Lock, error) { return take(ctx) })
}

// once calls Once, whose function holds the lock until at.unlock is called. For
// a tick that is done, it returns nil, nil.
func (at *attempt) once(ctx context.Context, m *dlock.RWMutex) (*dlock.Lock, error) {
	locked, leave, ended := make(chan *dlock.Lock, 1), make(chan struct{}), make(chan error, 1)
	at.unlock = func() error {
		close(leave)
		return <-ended
	}
	go func() {
		_, err := m.Once(ctx, at.tick, func(_ context.Context, l *dlock.Lock) error {
			locked <- l
			<-leave
			return nil
		})
		ended <- err
	}()
	select {
	case l := <-locked:
		return l, nil
	case err := <-ended:
		return nil, err
	}
}

func (a *actor) trace(at *attempt) *recipes.Trace {
	return &recipes.Trace{
		Queued:   func(_ context.Context, i recipes.QueuedInfo) { a.queuedAs(at, i.Place.Token) },
		Retrying: func(context.Context, recipes.RetryingInfo) { a.note(func() { at.retried = true }) },
	}
}

func (a *actor) use(h *handle, depth int) {
	ctx := h.lock.Context(context.Background())
	held := a.hold(h)
	var inside sync.WaitGroup
	switch once := h.unlock != nil; {
	case once:
	case !held && a.chance(50): // a re-entry must report the loss, too
		a.reenter(context.WithoutCancel(ctx), h)
	case h.queue == "p" && len(a.queues) > 1 && a.chance(10):
		a.nest(ctx, h)
	case depth < 2 && a.chance(30):
		a.again(ctx, h, depth, &inside)
	}
	switch {
	case !held || h.given != nil || !a.chance(30):
	case h.units > 0:
		if err := h.lock.Downgrade(ctx); err == nil {
			a.wrong.add("%v: units were downgraded", h)
		}
	case h.unlock == nil:
		a.lower(h)
		a.hold(h)
		if depth == 0 && a.chance(25) {
			a.reenter(ctx, h)
		}
	}
	a.giveBack(h)
	inside.Wait()
	if depth > 0 {
		return // only the outermost Unlock ends the contexts
	}
	if ctx.Err() == nil {
		a.wrong.add("%v: its context goes on after Unlock", h)
	}
	if a.chance(10) {
		a.giveBack(h)
		a.reenter(context.WithoutCancel(ctx), h)
	}
}

func (a *actor) again(ctx context.Context, h *handle, depth int, inside *sync.WaitGroup) {
	b := *a
	b.id, b.rand = 10*a.id+depth, rand.New(rand.NewPCG(a.rand.Uint64(), 2))
	beside, outerFirst := !a.alone && a.chance(50), a.chance(50)
	enter := func() {
		again := b.contend(ctx, &attempt{client: h.client, queue: h.queue, within: h})
		switch {
		case again == nil:
			return
		case !beside && outerFirst:
			a.giveBack(h)
		}
		b.use(again, depth+1)
	}
	if beside {
		inside.Go(enter)
		a.hold(h)
	} else {
		enter()
	}
}

// nest takes the lock "q" while it holds "p". Only holders of "p" ask for "q",
// so there are no deadlocks.
func (a *actor) nest(ctx context.Context, h *handle) {
	at := &attempt{client: h.client, queue: "q", within: h, mode: dlock.Shared, limit: a.span(a.deadline), limited: true}
	if nested := a.call(ctx, at, dlock.WithTimeout(at.limit)); nested != nil {
		a.reenterWith(nested.lock.Context(ctx), &attempt{client: h.client, queue: h.queue, within: h, via: nested})
		a.giveBack(nested)
	}
}

func (a *actor) reenter(ctx context.Context, h *handle) {
	a.reenterWith(ctx, &attempt{client: h.client, queue: h.queue, within: h})
}

func (a *actor) reenterWith(ctx context.Context, at *attempt) {
	if again := a.contend(ctx, at); again != nil {
		a.giveBack(again)
	}
}

func (a *actor) hold(h *handle) bool {
	limit, looks := a.brief, 1+a.rand.IntN(3)
	switch n := a.rand.IntN(100); {
	case n < 4:
		limit = a.longest
		if a.nasty.hold != nil {
			a.nasty.hold()
		}
	case n < 30:
		limit = a.longer
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

func (a *actor) checkLossSignals(h *handle) {
	if errors.Is(h.lock.Err(), dlock.ErrNotHeld) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	select {
	case <-h.lock.Lost():
	case <-ctx.Done():
		a.wrong.add("%v: lost, but Lost does not close", h)
	}
	if inside := h.lock.Context(context.Background()); inside.Err() == nil || !errors.Is(context.Cause(inside), dlock.ErrLost) {
		a.wrong.add("%v: lost, but its context: %v", h, context.Cause(inside))
	}
}

func (a *actor) lower(h *handle) {
	a.ended(h, "downgrade", a.downgrade(h, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), a.span(a.deadline))
		defer cancel()
		return h.lock.Downgrade(ctx)
	}))
	a.ask(a.id, h)
}

func (a *actor) giveBack(h *handle) {
	if h.given != nil {
		if err := h.lock.Unlock(); !errors.Is(err, dlock.ErrNotHeld) && !errors.Is(err, dlock.ErrLost) {
			a.wrong.add("%v: a second Unlock: %v", h, err)
		}
		return
	}
	a.perhaps(a.nasty.write)
	before := h.lock.Err()
	err := a.unlock(h)
	switch {
	case h.lock.Err() == nil:
		a.wrong.add("%v: held after Unlock", h)
	case before != nil && err == nil:
		a.wrong.add("%v: Unlock does not report that it was lost: %v", h, before)
	}
	a.ended(h, "unlock", err)
}

func (a *actor) ended(h *handle, call string, err error) {
	closing := false
	a.note(func() { closing = h.client.closed != nil })
	switch {
	case err == nil, errors.Is(err, dlock.ErrLost), errors.Is(err, driver.ErrUnavailable):
	case h.unlock != nil && errors.Is(err, recipes.ErrNotRecorded):
	case closing && errors.Is(err, dlock.ErrClosed):
	default:
		a.wrong.add("%v: %s: %v", h, call, err)
	}
}

// tryInTurn runs at the end of a history, without faults or other calls. Every
// try must succeed.
func (a *actor) tryInTurn(queue string) {
	for _, at := range []*attempt{{mode: dlock.Exclusive}, {mode: dlock.Shared}, {mode: dlock.Shared, units: Units}} {
		at.queue, at.try = queue, true
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
		trying.Go(func() { a.quickly(&attempt{queue: queue, mode: dlock.Exclusive, try: true}) })
	}
	trying.Wait()
}

func (a *actor) quickly(at *attempt) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	at.client = a.slot.client()
	if h := a.call(ctx, at); h != nil {
		a.ask(a.id, h)
		a.giveBack(h)
	}
}

// informed first takes another lock. That write updates the client's server,
// which might otherwise lag behind and refuse the try.
func (a *actor) informed(at *attempt) {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	at.synced = a.tick()
	other, err := a.slot.client().locks.RWMutex("elsewhere").Lock(ctx)
	if err != nil {
		a.wrong.add("%v: in the end: %v", at, err)
		return
	}
	a.quickly(at)
	// With the other lock lost, the try may have reached a server that lags
	// behind.
	if other.Err() != nil {
		a.note(func() { at.synced = 0 })
	}
	_ = other.Unlock()
}
