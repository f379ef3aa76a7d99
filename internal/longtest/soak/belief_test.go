//go:build linux || darwin

package soak

import (
	"sync"
	"time"

	"github.com/dlock-go/dlock"
)

// hold is a lock that a worker has got, as long as it knows of no reason not to believe in it.
type hold struct {
	id      int64
	lock    *dlock.Lock
	journal *journal

	mu    sync.Mutex
	last  time.Duration // when it was believed
	noted time.Duration // when it was believed and written down
	over  bool
}

// noteEvery is how often a belief is written down while nothing happens.
const noteEvery = 40 * time.Millisecond

// look reads the clock, then Err, and tells whether the hold is one still, and when.
func (h *hold) look() (at time.Duration, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lookLocked(false)
}

// swear is look, written down whatever was written before.
func (h *hold) swear() (at time.Duration, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lookLocked(true)
}

func (h *hold) lookLocked(write bool) (at time.Duration, ok bool) {
	if h.over {
		return 0, false
	}
	at = now()
	if err := h.lock.Err(); err != nil {
		h.over = true
		if h.last > h.noted {
			h.journal.note(event{Kind: believed, Hold: h.id, At: h.last})
		}
		h.journal.note(event{Kind: told, Hold: h.id, At: now(), Told: err.Error()})
		return at, false
	}
	h.last = at
	if write || at-h.noted >= noteEvery {
		h.noted = at
		h.journal.note(event{Kind: believed, Hold: h.id, At: at})
	}
	return at, true
}

// end stops the watcher from looking, because the lock will be released. It tells whether the hold was one until now.
func (h *hold) end() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.lookLocked(true)
	h.over = true
	return ok
}

// watcher looks at all holds of a process again and again.
type watcher struct {
	mu    sync.Mutex
	holds map[*hold]bool
	stop  chan struct{}
	done  sync.WaitGroup
}

const lookEvery = 10 * time.Millisecond

func newWatcher() *watcher {
	w := &watcher{holds: make(map[*hold]bool), stop: make(chan struct{})}
	w.done.Go(w.run)
	return w
}

func (w *watcher) run() {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-ticker.C:
		}
		for _, h := range w.all() {
			h.look()
		}
	}
}

func (w *watcher) all() (all []*hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for h := range w.holds {
		all = append(all, h)
	}
	return all
}

func (w *watcher) add(h *hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds[h] = true
}

func (w *watcher) remove(h *hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.holds, h)
}

func (w *watcher) close() {
	close(w.stop)
	w.done.Wait()
}
