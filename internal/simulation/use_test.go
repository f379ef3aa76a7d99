package simulation

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes"
)

// unlockLimit is how long Unlock may take. It waits up to 2 s for the store.
const unlockLimit = 2*time.Second + slack

func (a *actor) use(m *recipes.RWMutex, queue string, l *recipes.Lock) {
	ctx := l.Context(context.Background())
	a.hold(ctx)
	if queue == "p" && len(a.run.queues) > 1 && a.chance(10) {
		a.nest(m, queue, l, ctx)
	}
	if !unlockedBefore(l) && a.chance(25) {
		a.reenter(m, queue, l, ctx)
	}
	if !unlockedBefore(l) && l.Mode() == recipes.Exclusive && a.chance(30) {
		a.downgrade(queue, l)
		a.hold(ctx)
		if a.chance(25) {
			a.reenter(m, queue, l, ctx)
		}
	}
	a.unlock(queue, l)
	if ctx.Err() == nil {
		a.run.fail("%v: the context goes on after Unlock", a)
	}
}

// unlockedBefore reports whether l was already unlocked, as after reenter,
// which sometimes unlocks the outer Lock first.
func unlockedBefore(l *recipes.Lock) bool { return errors.Is(l.Err(), recipes.ErrNotHeld) }

func (a *actor) hold(ctx context.Context) {
	limit := 100 * time.Millisecond
	if a.chance(30) {
		limit = 2 * time.Second
	}
	if a.chance(4) {
		limit = time.Minute
	}
	t := time.NewTimer(a.span(limit))
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// nest acquires a second lock with the context of the first, and then re-enters
// the first with the context of the second. Only holders of "p" ask for "q", so
// deadlocks are impossible.
func (a *actor) nest(outer *recipes.RWMutex, queue string, held *recipes.Lock, ctx context.Context) {
	m := a.mutex("q", recipes.WithTimeout(a.span(2*time.Second)))
	a.begin()
	l, err := m.RLock(ctx)
	a.end()
	switch {
	case err == nil:
		a.run.count("nested")
		a.run.granted(a, ctx, "q", l, 0)
		a.reenter(outer, queue, held, l.Context(ctx))
		a.unlock("q", l)
	case errors.Is(err, recipes.ErrTimeout), errors.Is(err, recipes.ErrLost), errors.Is(err, recipes.ErrClosed):
	default:
		a.run.fail("%v: nested rlock: %v", a, err)
	}
}

// reenter takes a held lock again, with its context, and checks the result. It
// sometimes unlocks the outer Lock before the inner one.
func (a *actor) reenter(m *recipes.RWMutex, queue string, outer *recipes.Lock, ctx context.Context) {
	attempt, wants := m.RLock, recipes.Shared
	if a.chance(50) {
		attempt, wants = m.Lock, recipes.Exclusive
	}
	has, lost := outer.Mode(), outer.Err()
	inner, err := attempt(ctx)
	switch {
	case errors.Is(err, recipes.ErrLost):
		if outer.Err() == nil {
			a.run.fail("%v: re-entry says that a lock is lost which is not: %v", a, err)
		}
		return
	case lost != nil:
		a.run.fail("%v: a lost lock was entered again: %v, %v", a, inner, err)
		return
	case has == recipes.Shared && wants == recipes.Exclusive:
		if !errors.Is(err, recipes.ErrUpgrade) {
			a.run.fail("%v: an upgrade gave %v", a, err)
		}
		return
	case err != nil:
		a.run.fail("%v: re-entry: %v", a, err)
		return
	case inner.Token() != outer.Token():
		a.run.fail("%v: re-entry has another token", a)
	}
	a.run.entered(a, queue, inner)
	a.hold(ctx)
	if a.chance(50) { // has an effect only if no other Lock is exclusive
		a.unlock(queue, outer)
		a.hold(inner.Context(context.Background()))
	}
	a.unlock(queue, inner)
}

func (a *actor) downgrade(queue string, l *recipes.Lock) {
	err := l.Downgrade(context.Background())
	a.run.remark("%v downgrades %s: %v", a, l.Node(), err)
	a.run.judgeText(err)
	a.run.count("downgrade")
	switch {
	case err == nil && a.run.wrap != nil: // a broken session may not rename the node
	case err == nil:
		if name, stands := a.run.stands(queue, l.Token()); stands && !strings.Contains(name, "-R-") {
			a.run.fail("%v has downgraded, and its node is %s", a, name)
		}
	case errors.Is(err, recipes.ErrLost), errors.Is(err, driver.ErrUnavailable):
	default:
		a.run.fail("%v: downgrade: %v", a, err)
	}
}

func (a *actor) unlock(queue string, l *recipes.Lock) {
	last := a.run.giving(l)
	began := time.Now()
	_, removed := a.run.removedAt(l)
	again := l.Err()
	err := l.Unlock()
	a.run.remark("%v unlocks %s: %v", a, l.Node(), err)
	a.run.judgeText(err)
	if took := time.Since(began); took > unlockLimit {
		a.run.fail("%v: unlock took %v", a, took)
	}
	if l.Err() == nil {
		a.run.fail("%v: held after Unlock", a)
	}
	switch {
	case errors.Is(again, recipes.ErrNotHeld): // this call was the second Unlock
		if err == nil {
			a.run.fail("%v: a second Unlock succeeds", a)
		}
	case errors.Is(err, recipes.ErrLost), errors.Is(err, recipes.ErrClosed), errors.Is(err, driver.ErrUnavailable):
		a.run.count("unlock: " + kindOf(err))
	case again != nil:
		a.run.fail("%v: unlock of a lost lock: %v", a, err)
	case err != nil:
		a.run.fail("%v: unlock: %v", a, err)
	case last && removed && !a.run.doubtful(l) && a.client.calmSince(began).Equal(began):
		a.run.fail("Unlock of %v did not report that its node %s had been removed", a, l.Node())
	case last:
		if name, stands := a.run.stands(queue, l.Token()); stands {
			a.run.fail("%v has unlocked, and its node %s is there", a, name)
		}
	}
}

func kindOf(err error) string {
	for _, known := range []error{recipes.ErrClosed, recipes.ErrLost, driver.ErrUnavailable} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return "other"
}
