package recipes

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// hold is a node that holds the lock. It is shared by the Locks of one contender who entered
// again and again, and goes with the last of them.
type hold struct {
	m       *RWMutex
	session *session
	since   time.Time
	token   int64
	links   links // guarded by session.mu

	retainer *retainer // whose place it is, or nil; set before others know of the hold, or under mu

	mu         sync.Mutex
	place      driver.Place
	held       [Exclusive + 1]int // the Locks not yet unlocked, by mode
	locks      []*Lock            // those besides own
	lost       error
	released   bool
	downgraded bool               // the store has to be told, or was
	retelling  bool               // by the reaper
	replacing  chan struct{}      // closed when the Replace in flight, if any, has returned
	interrupt  context.CancelFunc // stops it
	unguard    context.CancelFunc // stops the goroutine that watches the node

	leaving patience // of the one who gives it back; part of the hold for the reason that own is

	own      Lock // the first one; part of the hold so that a free lock costs one allocation
	ownState lockState
	ownTurn  turn
}

// turn is the time for which one contender holds the lock: with the Lock that it was
// granted and those that entered again by its context. A hold that is no retained place
// has one turn. Turn is guarded by hold.mu.
type turn struct {
	since time.Time
	locks int             // not yet unlocked
	trace *Trace          // its Granted was called, and Released or Lost follows; else nil
	call  context.Context // of the call that was granted the lock; nil if no hook needs it
}

// granted makes a turn one that hooks see.
func (t *turn) granted(ctx context.Context, trace *Trace) {
	t.trace, t.call = trace, trace.keep(ctx)
}

// context returns the context for hooks that run after the call which took the lock.
func (t *turn) context() context.Context {
	if t.call == nil {
		return context.Background()
	}
	return t.call
}

func newHold(m *RWMutex, s *session, place driver.Place, mode Mode, since time.Time) *hold {
	h := &hold{m: m, session: s, since: since, token: place.Token, place: place}
	h.ownTurn = turn{since: since, locks: 1}
	h.ownState.hold, h.ownState.mode, h.ownState.turn = h, mode, &h.ownTurn
	h.own.lockState = &h.ownState
	h.held[mode] = 1
	return h
}

// check has the session look at the clocks, and marks the lock as lost if the session is over.
// It is called without mu.
func (h *hold) check() {
	if h.session.Err() != nil {
		h.lose(h.session.why())()
	}
}

// over tells whether the lock is lost or given back.
func (h *hold) over() bool {
	h.check()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost != nil || h.released
}

// why returns why the lock was lost, or that it is not held for another reason.
func (h *hold) why() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost != nil {
		return h.lost
	}
	return h.m.notHeld
}

// lose marks the lock as lost and tells everybody who holds it. Only the first loss counts, and
// none after the last Unlock. What it returns is to be called then: it logs and traces the
// loss.
func (h *hold) lose(cause error) (report func()) {
	h.mu.Lock()
	if h.lost != nil || h.released {
		h.mu.Unlock()
		return func() {}
	}
	err := &lostError{lock: h.m.name, node: h.place.Name, cause: cause}
	h.lost = err
	retainer := h.retainer
	if h.held[Shared]+h.held[Exclusive] > 0 {
		h.session.holdLost()
	}
	h.stop()
	var endings []func(error)
	var turns []*turn
	for _, l := range append([]*Lock{&h.own}, h.locks...) {
		if l.unlocked {
			continue
		}
		endings = append(endings, l.detach(true)...)
		if !slices.Contains(turns, l.turn) {
			turns = append(turns, l.turn)
		}
	}
	reports := h.reports(err, turns)
	h.mu.Unlock()

	for _, end := range endings {
		end(err)
	}
	h.session.remove(h)
	if retainer != nil {
		retainer.lost(h)
	}
	return reports
}

// discard ends a hold whose only Lock no caller gets. The attempt removes its
// node.
func (h *hold) discard() {
	h.session.remove(h)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost != nil {
		h.session.lostUnlocked()
		return
	}
	h.released = true
	h.stop()
}

// reports returns a function that logs and traces the loss of turns. It is
// called with mu held; the function is to be called without.
func (h *hold) reports(err *lostError, turns []*turn) func() {
	if len(turns) == 0 {
		return func() {} // a place that is idle
	}
	copies := make([]turn, len(turns))
	for i, t := range turns {
		copies[i] = *t
	}
	return func() {
		h.m.options.logger.Warn("dlock: lock lost", "lock", err.lock, "node", err.node, "error", err.cause)
		for _, t := range copies {
			if t.trace != nil && t.trace.Lost != nil {
				t.trace.Lost(t.context(), LostInfo{Lock: err.lock, Node: err.node, Held: time.Since(t.since), Err: err})
			}
		}
	}
}

func (h *hold) placeNow() driver.Place {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.place
}

// stop ends what runs for the hold. It is called with mu held.
func (h *hold) stop() {
	if h.unguard != nil {
		h.unguard()
	}
	if h.interrupt != nil {
		h.interrupt()
	}
}

// mode returns how the contender holds the lock. It is called with mu held.
func (h *hold) mode() Mode {
	if h.held[Exclusive] > 0 {
		return Exclusive
	}
	return Shared
}

// enter adds a Lock to the hold of this one, without a request. It returns nil if this one is
// unlocked: then the hold was given back, or is somebody else's turn.
func (l *Lock) enter(mode Mode) (*Lock, error) {
	h := l.hold
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.lost != nil:
		return nil, h.lost
	case l.unlocked:
		return nil, nil
	case mode == Exclusive && h.mode() == Shared:
		return nil, lockError(h.m.name, ErrUpgrade)
	}
	inner := newLock(h, mode, l.turn)
	h.held[mode]++
	h.locks = append(h.locks, inner)
	return inner, nil
}

// guardAfter is how long a lock is held before its node is watched: brief holds pay nothing.
const guardAfter = 300 * time.Millisecond

// guard watches the node until the lock is given back or lost, and finds out if somebody
// removes it. An error of the store proves nothing: it goes on.
func (h *hold) guard() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if !h.guarding(cancel) {
		return
	}
	pace := retries{newBackOff: h.m.options.backOff}
	place := h.placeNow()
	for {
		began, name := time.Now(), place.Name
		err := h.awaitEnd(ctx, place)
		if err == nil {
			place.Name, err = h.session.find(ctx, h.m, h.placeNow())
		}
		switch {
		case ctx.Err() != nil || h.session.Err() != nil:
			return
		case err == nil && place.Name == "":
			h.lose(errTaken)()
			return
		case err == nil && (place.Name != name || time.Since(began) > brief):
			pace.succeeded()
		default:
			place.Name = name
			sleep(pace.nextTireless(), ctx.Done())
		}
	}
}

// brief is how long a watch has to last for its early end to be nothing unusual.
const brief = 100 * time.Millisecond

func (h *hold) guarding(cancel context.CancelFunc) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost != nil || h.released {
		return false
	}
	h.unguard = cancel
	return true
}

// awaitEnd watches the node and returns nil once the watch has ended, which is
// at once if the node does not stand under that name.
func (h *hold) awaitEnd(ctx context.Context, p driver.Place) error {
	watch, err := h.session.Watch(ctx, h.m.name, p)
	if err != nil {
		return err
	}
	defer watch.Stop()
	for {
		select {
		case _, open := <-watch.C:
			if !open {
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}
