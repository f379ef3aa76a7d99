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

// actor is a goroutine of a worker that takes one lock after the other. It has a host name of its own: two who
// share one can be mistaken for each other when an operator removes a whole queue.
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

// turns are what an actor does, with how often.
var turns = []struct {
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
		a.drawTurn()(a, briefLocks[a.random.IntN(len(briefLocks))])
		a.pause(between(a.random, time.Millisecond, 120*time.Millisecond))
	}
}

// keep holds one of the long locks after the other, until it is lost or has been held for some seconds.
func (a *actor) keep() {
	for !a.finishing() {
		name := longLocks[a.random.IntN(len(longLocks))]
		lock := (*dlock.RWMutex).Lock
		if a.random.IntN(4) == 0 {
			lock = (*dlock.RWMutex).RLock
		}
		h := a.take(name, "keep", lock, context.Background())
		if h == nil {
			continue
		}
		exclusive := h.lock.Mode() == dlock.Exclusive
		if exclusive {
			a.bump(name, h)
		}
		select {
		case <-h.lock.Lost():
			a.linger()
		case <-a.finish:
		case <-time.After(time.Second + time.Duration(a.random.Float64()*float64(9*time.Second))):
		}
		if exclusive {
			a.bump(name, h)
		}
		a.release(h)
	}
}

// linger puts off the Unlock of a lost lock, every other time for long enough that
// the store drops the session by itself. An Unlock has the client end it at once,
// and then says nothing about the margin of the lease.
func (a *actor) linger() {
	if a.random.IntN(2) == 0 {
		return
	}
	select {
	case <-a.finish:
	case <-time.After(5 * time.Second): // sessions last for four at most
	}
}

func (a *actor) drawTurn() func(*actor, string) {
	sum := 0
	for _, t := range turns {
		sum += t.weight
	}
	n := a.random.IntN(sum)
	for _, t := range turns {
		if n -= t.weight; n < 0 {
			return t.do
		}
	}
	panic("unreachable")
}

// lastRound takes every lock once, for writing, and has to succeed.
func (a *actor) lastRound() {
	for _, name := range lockNames {
		ctx, cancel := within(patience)
		for {
			if h := a.take(name, "last", (*dlock.RWMutex).Lock, ctx); h != nil {
				a.bump(name, h)
				a.release(h)
				break
			}
			if ctx.Err() != nil {
				a.fault("%s: not granted within %v at the end, with all servers well", name, patience)
				break
			}
		}
		cancel()
	}
}

// write waits as long as it takes.
func (a *actor) write(name string) {
	if h := a.take(name, "wait", (*dlock.RWMutex).Lock, context.Background()); h != nil {
		a.bump(name, h)
		a.release(h)
	}
}

func (a *actor) writeInTime(name string) {
	ctx, cancel := within(between(a.random, 50*time.Millisecond, 3*time.Second))
	defer cancel()
	if h := a.take(name, "timeout", (*dlock.RWMutex).Lock, ctx); h != nil {
		a.bump(name, h)
		a.release(h)
	}
}

func (a *actor) tryToWrite(name string) {
	if h := a.take(name, "try", (*dlock.RWMutex).TryLock, context.Background()); h != nil {
		a.bump(name, h)
		a.release(h)
	}
}

// writeOrGiveUp is cancelled at some moment.
func (a *actor) writeOrGiveUp(name string) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	timer := time.AfterFunc(between(a.random, 0, time.Second), cancel)
	defer timer.Stop()
	if h := a.take(name, "cancel", (*dlock.RWMutex).Lock, ctx); h != nil {
		a.bump(name, h)
		a.release(h)
	}
}

// writeInside enters the lock again and writes there.
func (a *actor) writeInside(name string) {
	h := a.take(name, "wait", (*dlock.RWMutex).Lock, context.Background())
	if h == nil {
		return
	}
	defer a.release(h)
	ctx := h.lock.Context(context.Background())
	inner, err := a.locks[name].Lock(ctx)
	if err != nil {
		a.mayBe(name, err)
		return
	}
	a.journal.note(event{Kind: entered, At: now(), Hold: h.id})
	if inner.Token() != h.lock.Token() {
		a.fault("%s: token %d inside, %d outside", name, inner.Token(), h.lock.Token())
	}
	a.bump(name, h)
	if err := inner.Unlock(); err != nil {
		a.mayBe(name, err)
	}
}

// writeAndRead downgrades.
func (a *actor) writeAndRead(name string) {
	h := a.take(name, "wait", (*dlock.RWMutex).Lock, context.Background())
	if h == nil {
		return
	}
	defer a.release(h)
	a.bump(name, h)
	at, ok := h.swear()
	if !ok {
		return
	}
	a.journal.note(event{Kind: downgrading, At: at, Hold: h.id})
	ctx, cancel := within(time.Second)
	defer cancel()
	if err := h.lock.Downgrade(ctx); err != nil {
		a.mayBe(name, err)
		return
	}
	a.journal.note(event{Kind: downgraded, At: now(), Hold: h.id})
	a.readTwice(name, h)
}

func (a *actor) read(name string) {
	if h := a.take(name, "wait", (*dlock.RWMutex).RLock, context.Background()); h != nil {
		a.readTwice(name, h)
		a.release(h)
	}
}

func (a *actor) tryToRead(name string) {
	if h := a.take(name, "try", (*dlock.RWMutex).TryRLock, context.Background()); h != nil {
		a.readTwice(name, h)
		a.release(h)
	}
}

// take asks for a lock. It returns nil if the lock was not granted, or is lost already.
func (a *actor) take(name, how string, lock func(*dlock.RWMutex, context.Context) (*dlock.Lock, error), ctx context.Context) *hold {
	id := a.ids.Add(1)
	a.journal.note(event{Kind: asked, At: now(), Hold: id, Lock: name, How: how})
	l, err := lock(a.locks[name], ctx)
	if err != nil {
		a.journal.note(event{Kind: refused, At: now(), Hold: id, Told: err.Error()})
		a.mayBe(name, err)
		return nil
	}
	at := now()
	held := l.Err() == nil
	a.journal.note(event{Kind: granted, At: at, Hold: id, Lock: name, How: how, Held: held,
		Mode: l.Mode().String(), Node: l.Node(), Token: l.Token()})
	a.advance()
	h := &hold{id: id, lock: l, journal: a.journal, last: at, noted: at, over: !held}
	if held {
		a.watcher.add(h)
	}
	return h
}

// release gives the lock back. What Unlock says is a look at the lock, too.
func (a *actor) release(h *hold) {
	h.end()
	a.watcher.remove(h)
	at := now()
	err := h.lock.Unlock()
	e := event{Kind: released, At: at, Hold: h.id, Held: err == nil || errors.Is(err, driver.ErrUnavailable) && !errors.Is(err, dlock.ErrLost)}
	if err != nil {
		e.Told = err.Error()
	}
	a.journal.note(e)
	if err != nil {
		a.mayBe("", err)
	}
}

// passing are the errors that faults may cause.
var passing = []error{dlock.ErrLocked, dlock.ErrTimeout, dlock.ErrLost, context.Canceled, driver.ErrUnavailable}

func (a *actor) mayBe(name string, err error) {
	for _, p := range passing {
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
