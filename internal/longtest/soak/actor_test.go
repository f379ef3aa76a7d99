//go:build linux || darwin

package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// An actor's own host name keeps its node names unique when a sequence starts
// over.
type actor struct {
	*worker
	random *rand.Rand
	locks  map[string]*dlock.RWMutex
}

func newActor(w *worker, i int) *actor {
	a := &actor{worker: w, random: source(w.Seed, i), locks: make(map[string]*dlock.RWMutex)}
	for _, name := range lockNames {
		a.locks[name] = w.client.RWMutex(name, dlock.WithHostname(fmt.Sprintf("%s.%d", w.Name, i)))
	}
	return a
}

type hold struct {
	name               string
	lock               *dlock.Lock
	id                 int64 // unique among the acquisitions of all workers
	checked, unchecked counter
}

func (a *actor) run() {
	for !a.finishing() {
		a.act(briefLocks[a.random.IntN(len(briefLocks))])
		a.pause(between(a.random, time.Millisecond, 120*time.Millisecond))
	}
}

func (a *actor) act(name string) {
	m, ctx, cancel := a.locks[name], context.Background(), func() {}
	lock, try, write := m.Lock, m.TryLock, a.random.IntN(4) > 0
	if !write {
		lock, try = m.RLock, m.TryRLock
	}
	switch n := a.random.IntN(100); {
	case n < 10:
		ctx, cancel = within(between(a.random, 50*time.Millisecond, 3*time.Second))
	case n < 16:
		ctx, cancel = context.WithCancel(ctx)
		defer time.AfterFunc(between(a.random, 0, time.Second), cancel).Stop()
	case n < 34:
		lock = try
	}
	h := a.acquire(ctx, name, lock)
	cancel()
	if h == nil {
		return
	}
	defer a.release(h)
	if !write {
		a.readTwice(h)
		return
	}
	a.increment(h)
	switch a.random.IntN(7) {
	case 0:
		a.writeInside(h)
	case 1:
		ctx, cancel := within(time.Second)
		defer cancel()
		if err := h.lock.Downgrade(ctx); err != nil {
			a.requireExplained(name, err)
			return
		}
		a.count("downgrades")
		a.readTwice(h)
	}
}

func (a *actor) writeInside(h *hold) {
	inner, err := a.locks[h.name].Lock(h.lock.Context(context.Background()))
	if err != nil {
		a.requireExplained(h.name, err)
		return
	}
	a.count("re-entries")
	if inner.Token() != h.lock.Token() {
		a.fault("%s: token %d inside, %d outside", h.name, inner.Token(), h.lock.Token())
	}
	a.increment(h)
	if err := inner.Unlock(); err != nil {
		a.requireExplained(h.name, err)
	}
}

func (a *actor) holdLong() {
	for !a.finishing() {
		name := longLocks[a.random.IntN(len(longLocks))]
		lock, ask := a.locks[name].Lock, counter.begin
		if a.random.IntN(4) == 0 {
			lock, ask = a.locks[name].RLock, counter.readAs
		}
		h := a.acquire(context.Background(), name, lock)
		if h == nil {
			continue
		}
		until := time.Now().Add(time.Second + time.Duration(a.random.Float64()*float64(9*time.Second)))
		for h.lock.Err() == nil && !a.finishing() && time.Now().Before(until) {
			if _, err := ask(h.checked, h.lock.Token(), h.id); err != nil {
				a.refused(h, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if h.lock.Mode() == dlock.Exclusive {
			a.increment(h)
		}
		// Unlock ends a lost session. In half of the cases, the servers expire
		// it first.
		if h.lock.Err() != nil && a.random.IntN(2) == 0 {
			a.pause(5 * time.Second) // longer than any session timeout
		}
		a.release(h)
	}
}

// lastRound acquires every lock one last time, to show that none is stuck.
func (a *actor) lastRound() {
	for _, name := range lockNames {
		ctx, cancel := within(waitLimit)
		var h *hold
		for h == nil && ctx.Err() == nil {
			h = a.acquire(ctx, name, a.locks[name].Lock)
		}
		cancel()
		if h == nil {
			a.fault("%s%s: not granted within %v at the end, with all servers well", stuck, name, waitLimit)
			continue
		}
		a.increment(h)
		a.release(h)
	}
}

func (a *actor) acquire(ctx context.Context, name string, lock func(context.Context) (*dlock.Lock, error)) *hold {
	l, err := lock(ctx)
	if err != nil {
		a.requireExplained(name, err)
		return nil
	}
	a.countAcquisition(l.Mode())
	return &hold{name, l, a.random.Int64(), checkedCounter(a.Dir, name), uncheckedCounter(a.Dir, name)}
}

func (a *actor) release(h *hold) {
	if errors.Is(h.lock.Err(), dlock.ErrLost) {
		a.count("losses")
	}
	if err := h.lock.Unlock(); err != nil {
		a.requireExplained(h.name, err)
	}
}

var explainedErrors = []error{dlock.ErrLocked, dlock.ErrTimeout, dlock.ErrLost, context.Canceled, driver.ErrUnavailable}

func (a *actor) requireExplained(name string, err error) {
	for _, known := range explainedErrors {
		if errors.Is(err, known) {
			a.count("error: " + known.Error())
			return
		}
	}
	a.fault("%s: an error that no fault explains: %v", name, err)
}

func (a *actor) must(err error) {
	if err != nil {
		a.fault("counter: %v", err)
	}
}

// increment pauses before the write, as if the write went over a network.
func (a *actor) increment(h *hold) {
	count, err := h.checked.begin(h.lock.Token(), h.id)
	if err != nil {
		a.refused(h, err)
		return
	}
	was, err := h.unchecked.read()
	a.must(err)
	time.Sleep(between(a.random, 0, 30*time.Millisecond))
	if h.lock.Err() != nil {
		return
	}
	stoppedHere := a.waitForStop(h)
	time.Sleep(between(a.random, 0, 8*time.Millisecond))

	err = h.checked.write(count+1, h.lock.Token())
	a.must(h.unchecked.writeUnchecked(was.Count + 1))
	if stoppedHere {
		fmt.Printf("wrote %t\n", err == nil)
	}
	if err != nil {
		a.refused(h, err)
	}
}

// waitForStop blocks so that the test can stop the process before a write.
func (a *actor) waitForStop(h *hold) bool {
	order := a.halt.Load()
	if order == nil || *order != h.name || !a.halt.CompareAndSwap(order, nil) {
		return false
	}
	fmt.Printf("halting %d\n", h.lock.Token())
	<-a.goOn
	return true
}

func (a *actor) readTwice(h *hold) {
	first, err := h.checked.readAs(h.lock.Token(), h.id)
	if err == nil {
		time.Sleep(between(a.random, 0, 30*time.Millisecond))
		var second int64
		if second, err = h.checked.readAs(h.lock.Token(), h.id); err == nil && second != first {
			err = fmt.Errorf("%w: it has read %d and then %d", errStale, first, second)
		}
	}
	if err != nil {
		a.refused(h, err)
	}
}

// A refused token means two holders, unless the lock is lost or an operator
// interfered.
func (a *actor) refused(h *hold, err error) {
	if !errors.Is(err, errStale) {
		a.must(err)
		return
	}
	if h.lock.Err() == nil && h.name != tamperedLock {
		a.fault("%s: two at once: %v is held, but the counter says: %v", h.name, h.lock, err)
	}
}
