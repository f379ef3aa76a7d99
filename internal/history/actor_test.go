package history

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes"
)

// bound is generous: it ends a call that hangs.
const bound = time.Minute

// actor is a goroutine that uses a client's locks. All that it does is drawn from its own numbers.
type actor struct {
	*recorder
	id     int
	client int
	locks  *dlock.Client
	queues []string
	rand   *rand.Rand
	rounds int
	stop   <-chan struct{} // ends the rounds early; nil: nothing does
	unit   time.Duration   // about how long a lock is held
	wrong  *complaints
}

// complaints are errors that calls must not return.
type complaints struct {
	mu  sync.Mutex
	all []string
}

func (c *complaints) add(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, fmt.Sprintf(format, args...))
}

func (a *actor) chance(percent int) bool { return a.rand.IntN(100) < percent }

// span is a duration that nobody else draws.
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
			a.round()
		}
	}
}

var ways = []dlock.Wait{recipes.Predecessor, recipes.Predecessor, recipes.AnyChange, recipes.Poll(50 * time.Millisecond)}

func (a *actor) round() {
	queue := a.queues[a.rand.IntN(len(a.queues))]
	m := a.locks.RWMutex(queue, dlock.WithWait(ways[a.rand.IntN(len(ways))]))
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	impatient := a.chance(20)
	if impatient {
		defer time.AfterFunc(a.span(10*a.unit), cancel).Stop()
	}
	take, mode, try := m.Lock, dlock.Exclusive, a.chance(15)
	switch shared := a.chance(45); {
	case shared && try:
		take, mode = m.TryRLock, dlock.Shared
	case shared:
		take, mode = m.RLock, dlock.Shared
	case try:
		take = m.TryLock
	}
	h, err := a.take(a.client, queue, mode, func() (*dlock.Lock, error) { return take(ctx) })
	switch {
	case err == nil:
		a.use(h)
	case try && errors.Is(err, dlock.ErrLocked), impatient && errors.Is(err, context.Canceled):
	default:
		a.wrong.add("client %d: take %s: %v", a.client, queue, err)
	}
}

// use holds a lock for a while, perhaps downgrades it, and gives it back.
func (a *actor) use(h *hold) {
	a.linger(h)
	if h.mode == dlock.Exclusive && a.chance(40) {
		a.ended("downgrade", a.downgrade(h, func() error {
			ctx, cancel := context.WithTimeout(context.Background(), a.span(5*a.unit))
			defer cancel()
			return h.lock.Downgrade(ctx)
		}))
		a.ask(h)
		a.linger(h)
	}
	a.ended("unlock", a.unlock(h))
}

// linger holds the lock and looks at it now and then, until it is lost.
func (a *actor) linger(h *hold) {
	limit := a.unit
	if a.chance(20) {
		limit = 10 * a.unit
	}
	for range 1 + a.rand.IntN(4) {
		t := time.NewTimer(a.span(limit / 2))
		select {
		case <-t.C:
		case <-h.lock.Lost():
		}
		t.Stop()
		if !a.ask(h) {
			return
		}
	}
}

// ended complains of an error that Unlock and Downgrade must not return.
func (a *actor) ended(call string, err error) {
	switch {
	case err == nil, errors.Is(err, dlock.ErrLost), errors.Is(err, driver.ErrUnavailable):
	default:
		a.wrong.add("client %d: %s: %v", a.client, call, err)
	}
}
