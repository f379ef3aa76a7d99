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

// handover is a held lock with one waiter.
type handover struct {
	holder *dlock.Client
	lock   *dlock.Lock
	lost   <-chan time.Time
	next   <-chan grant
	stalls *stalls
}

type grant struct {
	err        error
	at         time.Time
	holderErr  error // the previous holder's Lock.Err
	holderLost bool  // whether the previous holder's Lock.Lost was closed
	stalled    bool  // a stall may have delayed Lost
}

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
	next := open(t, nextDSN, dlock.WithTrace(&recipes.Trace{Waiting: func(context.Context, recipes.WaitingInfo) {
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

func (h *handover) lockAndUnlock(ctx context.Context, m *dlock.RWMutex) grant {
	l, err := m.Lock(ctx)
	g := grant{err: err, at: time.Now(), holderLost: closed(h.lock.Lost()), holderErr: h.lock.Err()}
	if err != nil {
		return g
	}
	g.stalled = h.stalls.within(time.Second)
	// On a busy machine the release may be confirmed late, which is no
	// failure.
	if err = l.Unlock(); !errors.Is(err, dlock.ErrUnavailable) {
		g.err = err
	}
	return g
}

// margin returns how long before the next grant the holder learned of its loss.
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
