package simulation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes"
)

// actor is one goroutine that uses a client's locks. What it does is drawn from its own numbers,
// so that it does not depend on what the others do.
type actor struct {
	run    *run
	id     int
	client *recipes.Sessions
	rand   *rand.Rand
	rounds int
}

func (a *actor) chance(percent int) bool { return a.rand.IntN(100) < percent }

// span is a duration that nobody else draws.
func (a *actor) span(limit time.Duration) time.Duration {
	return time.Duration(a.rand.Int64N(int64(limit))) + time.Duration(a.id)
}

func (a *actor) play() {
	for range a.rounds {
		time.Sleep(a.span(200 * time.Millisecond))
		a.round()
	}
}

// ways of waiting. Poll is not among them: it draws its pauses from numbers of its own.
var ways = []recipes.Wait{recipes.Predecessor, recipes.Predecessor, recipes.Predecessor, recipes.AnyChange}

func (a *actor) round() {
	queue := a.run.queues[a.rand.IntN(len(a.run.queues))]
	m := a.client.RWMutex(queue, recipes.WithWait(ways[a.rand.IntN(len(ways))]))
	ctx, patient := context.Background(), true
	switch {
	case a.chance(20):
		c, cancel := context.WithTimeout(ctx, a.span(3*time.Second))
		defer cancel()
		ctx, patient = c, false
	case a.chance(20):
		c, cancel := context.WithCancel(ctx)
		stop := time.AfterFunc(a.span(2*time.Second), cancel)
		defer stop.Stop()
		defer cancel()
		ctx, patient = c, false
	}
	take, name := m.Lock, "lock"
	switch {
	case a.chance(15):
		take, name, patient = m.TryLock, "try lock", false
	case a.chance(15):
		take, name, patient = m.TryRLock, "try rlock", false
	case a.chance(50):
		take, name = m.RLock, "rlock"
	}
	l, err := take(ctx)
	if err != nil {
		a.judge(name, err, patient)
		return
	}
	a.run.granted(a, queue, l)
	a.use(m, queue, l)
}

// judge fails the run for an error that the call must not return.
func (a *actor) judge(name string, err error, patient bool) {
	switch {
	case patient:
		a.run.fail("actor %d: %s failed without a reason: %v", a.id, name, err)
	case errors.Is(err, recipes.ErrTimeout), errors.Is(err, context.Canceled), errors.Is(err, recipes.ErrLocked):
	default:
		a.run.fail("actor %d: %s: unexpected error: %v", a.id, name, err)
	}
}

// use holds a lock for a while, enters it again, perhaps, and gives it back.
func (a *actor) use(m *recipes.RWMutex, queue string, l *recipes.Lock) {
	ctx := l.Context(context.Background())
	a.hold(ctx)
	if a.chance(25) {
		a.reenter(m, queue, l, ctx)
	}
	if l.Mode() == recipes.Exclusive && a.chance(30) {
		a.ended("downgrade", l.Downgrade(context.Background()))
		a.hold(ctx)
	}
	a.unlock(l)
	if ctx.Err() == nil {
		a.run.fail("actor %d: the context goes on after Unlock", a.id)
	}
}

// hold waits, or returns early when the lock is lost.
func (a *actor) hold(ctx context.Context) {
	limit := 100 * time.Millisecond
	if a.chance(30) {
		limit = 2 * time.Second
	}
	if a.chance(3) {
		limit = time.Minute
	}
	t := time.NewTimer(a.span(limit))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (a *actor) reenter(m *recipes.RWMutex, queue string, outer *recipes.Lock, ctx context.Context) {
	take, wants := m.RLock, recipes.Shared
	if a.chance(50) {
		take, wants = m.Lock, recipes.Exclusive
	}
	has := outer.Mode()
	inner, err := take(ctx)
	switch {
	case errors.Is(err, recipes.ErrLost):
		return
	case has == recipes.Shared && wants == recipes.Exclusive:
		if !errors.Is(err, recipes.ErrUpgrade) {
			a.run.fail("actor %d: an upgrade gave %v", a.id, err)
		}
		return
	case err != nil:
		a.run.fail("actor %d: re-entry: %v", a.id, err)
		return
	case inner.Token() != outer.Token():
		a.run.fail("actor %d: re-entry has another token", a.id)
	}
	a.run.entered(a, queue, inner)
	a.hold(ctx)
	if a.chance(50) { // the outer one goes first, which may be a downgrade
		a.unlock(outer)
		a.hold(context.Background())
	}
	a.unlock(inner)
}

func (a *actor) unlock(l *recipes.Lock) {
	a.run.giving(l)
	a.ended("unlock", l.Unlock())
	if l.Err() == nil {
		a.run.fail("actor %d: held after Unlock", a.id)
	}
}

// ended fails the run for an error that Unlock and Downgrade must not return.
func (a *actor) ended(name string, err error) {
	switch {
	case err == nil, errors.Is(err, recipes.ErrLost), errors.Is(err, recipes.ErrNotHeld), errors.Is(err, driver.ErrUnavailable):
	default:
		a.run.fail("actor %d: %s: unexpected error: %v", a.id, name, err)
	}
}

func (a *actor) String() string { return fmt.Sprint("actor ", a.id) }
