package ensemble

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/recipes"
)

// handover is a lock with its holder and a waiter.
type handover struct {
	holder *dlock.Client
	lock   *dlock.Lock
	lost   <-chan time.Time
	next   <-chan grant
	stalls *stalls
}

// grant records when the waiter was granted the lock, and what the holder's
// lock reported at that instant.
type grant struct {
	err        error
	at         time.Time
	holderErr  error // result of the holder's Err
	holderLost bool  // whether the holder's Lost was closed
	stalled    bool  // whether a stall may have delayed Lost
}

// contend lets one client hold a lock and another wait for it. It returns once
// the waiter has a node in the queue.
func contend(t testing.TB, name, holderDSN, nextDSN string) *handover {
	t.Helper()
	h := &handover{holder: open(t, holderDSN), stalls: watchStalls(t)}
	var err error
	h.lock, err = h.holder.RWMutex(name).Lock(within(t))
	require.NoError(t, err)

	lost := make(chan time.Time, 1)
	h.lost = lost
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	told := h.lock.Lost()
	go func() {
		select {
		case <-told:
			lost <- time.Now()
		case <-ended:
		}
	}()
	h.next = h.queue(t, name, nextDSN)
	return h
}

func (h *handover) queue(t testing.TB, name, nextDSN string) <-chan grant {
	t.Helper()
	waiting := make(chan struct{}, 1)
	next := open(t, nextDSN, dlock.WithTrace(&dlock.Trace{Waiting: func(context.Context, recipes.WaitingInfo) {
		select {
		case waiting <- struct{}{}:
		default:
		}
	}}))
	granted := make(chan grant, 1)
	ctx := within(t)
	go func() { granted <- h.lockAndUnlock(ctx, next.RWMutex(name)) }()
	select {
	case <-waiting:
	case g := <-granted:
		t.Fatalf("the second client did not wait: %v", g.err)
	case <-ctx.Done():
		t.Fatal("the second client does not wait in the queue")
	}
	return granted
}

// lockAndUnlock acquires and releases the lock. It returns what the holder's
// lock reported at the time of the grant.
func (h *handover) lockAndUnlock(ctx context.Context, m *dlock.RWMutex) grant {
	l, err := m.Lock(ctx)
	g := grant{err: err, at: time.Now(), holderLost: closed(h.lock.Lost()), holderErr: h.lock.Err()}
	if err != nil {
		return g
	}
	g.stalled = h.stalls.within(time.Second)
	// A late confirmation by a busy machine is no failure, because the lock
	// was granted.
	if err = l.Unlock(); !errors.Is(err, dlock.ErrUnavailable) {
		g.err = err
	}
	return g
}

// margin waits for the end of the hand-over and returns the time between the
// holder's Lost and the next grant. It returns an error if the holder did not
// learn of the loss in time, or if the waiter was not granted the lock.
func (h *handover) margin() (time.Duration, error) {
	var g grant
	select {
	case g = <-h.next:
	case <-time.After(bound):
		return 0, errors.New("the waiter was not granted the lock")
	}
	if g.err != nil {
		return 0, g.err
	}
	var lost time.Time
	select {
	case lost = <-h.lost:
	case <-time.After(bound):
		return 0, errors.New("the holder has not learned that the lock is lost")
	}
	margin := g.at.Sub(lost)
	switch {
	case !errors.Is(g.holderErr, dlock.ErrLost):
		return margin, fmt.Errorf("two holders for %v: Err was %v when the waiter was granted the lock", -margin, g.holderErr)
	case !g.holderLost && !g.stalled:
		return margin, fmt.Errorf("Lost closed %v after the waiter was granted the lock", -margin)
	}
	return margin, nil
}

// margins waits for several hand-overs and returns their margins. A failed
// hand-over fails the test.
func margins(t testing.TB, all []*handover) []time.Duration {
	t.Helper()
	var found []time.Duration
	for i, h := range all {
		margin, err := h.margin()
		if err != nil {
			t.Errorf("run %d: %v", i, err)
		}
		found = append(found, margin)
	}
	return found
}

func logMargins(t testing.TB, what string, all []time.Duration) {
	t.Helper()
	if len(all) == 0 {
		return // already reported
	}
	slices.Sort(all)
	t.Logf("%s: %d runs, from Lost to the next grant at least %v, median %v", what, len(all),
		all[0].Round(100*time.Microsecond), all[len(all)/2].Round(100*time.Microsecond))
}
