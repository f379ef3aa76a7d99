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

// actor is a goroutine of a worker that acquires one lock after the other. Each
// has its own host name, so that node names stay unique even if an operator
// removes a queue and its sequence starts over.
type actor struct {
	*worker
	random *rand.Rand
	locks  map[string]*dlock.RWMutex
}

func newActor(w *worker, i int) *actor {
	a := &actor{worker: w, random: source(w.settings.Seed, i), locks: make(map[string]*dlock.RWMutex)}
	for _, name := range lockNames {
		a.locks[name] = w.client.RWMutex(name, dlock.WithHostname(fmt.Sprintf("%s.%d", w.settings.Name, i)))
	}
	return a
}

var actions = []struct {
	weight int
	do     func(*actor, string)
}{
	{30, (*actor).write},
	{10, (*actor).writeInTime},
	{10, (*actor).tryToWrite},
	{6, (*actor).writeOrGiveUp},
	{8, (*actor).writeInside},
	{10, (*actor).writeAndRead},
	{18, (*actor).read},
	{8, (*actor).tryToRead},
}

func (a *actor) run() {
	for !a.finishing() {
		a.drawAction()(a, briefLocks[a.random.IntN(len(briefLocks))])
		a.pause(between(a.random, time.Millisecond, 120*time.Millisecond))
	}
}

// holdLong acquires random long locks and holds each for some seconds, or until
// it is lost.
func (a *actor) holdLong() {
	for !a.finishing() {
		name := longLocks[a.random.IntN(len(longLocks))]
		lock := (*dlock.RWMutex).Lock
		if a.random.IntN(4) == 0 {
			lock = (*dlock.RWMutex).RLock
		}
		h := a.acquire(name, "hold long", lock, context.Background())
		if h == nil {
			continue
		}
		exclusive := h.lock.Mode() == dlock.Exclusive
		if exclusive {
			a.increment(name, h)
		}
		select {
		case <-h.lock.Lost():
			a.delayUnlock()
		case <-a.finish:
		case <-time.After(time.Second + time.Duration(a.random.Float64()*float64(9*time.Second))):
		}
		if exclusive {
			a.increment(name, h)
		}
		a.release(h)
	}
}

// delayUnlock delays half of the Unlocks of lost locks until the store has
// expired the session. An Unlock ends the session early, which would hide how
// long before the expiry a client gives up its lock.
func (a *actor) delayUnlock() {
	if a.random.IntN(2) == 0 {
		return
	}
	select {
	case <-a.finish:
	case <-time.After(5 * time.Second): // longer than any session timeout
	}
}

func (a *actor) drawAction() func(*actor, string) {
	sum := 0
	for _, t := range actions {
		sum += t.weight
	}
	n := a.random.IntN(sum)
	for _, t := range actions {
		if n -= t.weight; n < 0 {
			return t.do
		}
	}
	panic("unreachable")
}

// lastRound acquires every lock one last time, to show that none is stuck.
func (a *actor) lastRound() {
	for _, name := range lockNames {
		ctx, cancel := within(waitLimit)
		for {
			if h := a.acquire(name, "last", (*dlock.RWMutex).Lock, ctx); h != nil {
				a.increment(name, h)
				a.release(h)
				break
			}
			if ctx.Err() != nil {
				a.journal.note(event{Kind: stuck, At: now(),
					Text: fmt.Sprintf("%s: not granted within %v at the end, with all servers well", name, waitLimit)})
				break
			}
		}
		cancel()
	}
}

// write waits for the lock without a time limit and increments its counters.
func (a *actor) write(name string) {
	if h := a.acquire(name, "wait", (*dlock.RWMutex).Lock, context.Background()); h != nil {
		a.increment(name, h)
		a.release(h)
	}
}

func (a *actor) writeInTime(name string) {
	ctx, cancel := within(between(a.random, 50*time.Millisecond, 3*time.Second))
	defer cancel()
	if h := a.acquire(name, "timeout", (*dlock.RWMutex).Lock, ctx); h != nil {
		a.increment(name, h)
		a.release(h)
	}
}

func (a *actor) tryToWrite(name string) {
	if h := a.acquire(name, "try", (*dlock.RWMutex).TryLock, context.Background()); h != nil {
		a.increment(name, h)
		a.release(h)
	}
}

// writeOrGiveUp is like write, but cancels its Lock call after a random time.
func (a *actor) writeOrGiveUp(name string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	timer := time.AfterFunc(between(a.random, 0, time.Second), cancel)
	defer timer.Stop()
	if h := a.acquire(name, "cancel", (*dlock.RWMutex).Lock, ctx); h != nil {
		a.increment(name, h)
		a.release(h)
	}
}

// writeInside re-enters the lock and writes as the inner holder.
func (a *actor) writeInside(name string) {
	h := a.acquire(name, "wait", (*dlock.RWMutex).Lock, context.Background())
	if h == nil {
		return
	}
	defer a.release(h)
	ctx := h.lock.Context(context.Background())
	inner, err := a.locks[name].Lock(ctx)
	if err != nil {
		a.requireExplained(name, err)
		return
	}
	a.journal.note(event{Kind: entered, At: now(), Hold: h.id})
	if inner.Token() != h.lock.Token() {
		a.fault("%s: token %d inside, %d outside", name, inner.Token(), h.lock.Token())
	}
	a.increment(name, h)
	if err := inner.Unlock(); err != nil {
		a.requireExplained(name, err)
	}
}

// writeAndRead writes, downgrades the lock and reads.
func (a *actor) writeAndRead(name string) {
	h := a.acquire(name, "wait", (*dlock.RWMutex).Lock, context.Background())
	if h == nil {
		return
	}
	defer a.release(h)
	a.increment(name, h)
	at, ok := h.confirm()
	if !ok {
		return
	}
	a.journal.note(event{Kind: downgrading, At: at, Hold: h.id})
	ctx, cancel := within(time.Second)
	defer cancel()
	if err := h.lock.Downgrade(ctx); err != nil {
		a.requireExplained(name, err)
		return
	}
	a.journal.note(event{Kind: downgraded, At: now(), Hold: h.id})
	a.readTwice(name, h)
}

func (a *actor) read(name string) {
	if h := a.acquire(name, "wait", (*dlock.RWMutex).RLock, context.Background()); h != nil {
		a.readTwice(name, h)
		a.release(h)
	}
}

func (a *actor) tryToRead(name string) {
	if h := a.acquire(name, "try", (*dlock.RWMutex).TryRLock, context.Background()); h != nil {
		a.readTwice(name, h)
		a.release(h)
	}
}

func (a *actor) acquire(name, how string, lock func(*dlock.RWMutex, context.Context) (*dlock.Lock, error), ctx context.Context) *hold {
	id := a.ids.Add(1)
	a.journal.note(event{Kind: asked, At: now(), Hold: id, Lock: name, How: how})
	l, err := lock(a.locks[name], ctx)
	if err != nil {
		a.journal.note(event{Kind: refused, At: now(), Hold: id, Text: err.Error()})
		a.requireExplained(name, err)
		return nil
	}
	at := now()
	held := l.Err() == nil
	a.journal.note(event{Kind: granted, At: at, Hold: id, Lock: name, How: how, Held: held,
		Mode: l.Mode().String(), Node: l.Node(), Token: l.Token()})
	a.countAcquisition()
	h := &hold{id: id, lock: l, journal: a.journal, last: at, noted: at, over: !held}
	if held {
		a.watcher.add(h)
	}
	return h
}

// release unlocks the lock and records whether it was held until then.
func (a *actor) release(h *hold) {
	h.end()
	a.watcher.remove(h)
	at := now()
	err := h.lock.Unlock()
	e := event{Kind: released, At: at, Hold: h.id, Held: err == nil || errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, dlock.ErrLost)}
	if err != nil {
		e.Text = err.Error()
	}
	a.journal.note(e)
	if err != nil {
		a.requireExplained("", err)
	}
}

// explainedErrors are the errors with which calls may fail during faults.
var explainedErrors = []error{dlock.ErrLocked, dlock.ErrTimeout, dlock.ErrLost, context.Canceled, driver.ErrUnavailable}

func (a *actor) requireExplained(name string, err error) {
	for _, p := range explainedErrors {
		if errors.Is(err, p) {
			return
		}
	}
	a.fault("%s: an error that no fault explains: %v", name, err)
}

func (w *worker) must(err error) {
	if err != nil {
		w.fault("counter: %v", err)
	}
}
