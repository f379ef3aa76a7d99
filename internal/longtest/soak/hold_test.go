//go:build linux || darwin

package soak

import (
	"sync"
	"time"

	"github.com/dlock-go/dlock"
)

// hold is a lock acquired by a worker. It ends with a noticed loss or just
// before the Unlock.
type hold struct {
	id      int64
	lock    *dlock.Lock
	journal *journal

	mu    sync.Mutex
	last  time.Duration // latest time after which Err was nil
	noted time.Duration // latest confirmation in the journal
	over  bool
}

// noteEvery is the interval of journal entries while a lock stays held.
const noteEvery = 40 * time.Millisecond

// check reads the clock before Err, so that a nil Err proves the lock was held
// at that time. It writes only some results to the journal.
func (h *hold) check() (at time.Duration, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.checkLocked(false)
}

// confirm is like check, but writes every result to the journal.
func (h *hold) confirm() (at time.Duration, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.checkLocked(true)
}

func (h *hold) checkLocked(write bool) (at time.Duration, ok bool) {
	if h.over {
		return 0, false
	}
	at = now()
	if err := h.lock.Err(); err != nil {
		h.over = true
		if h.last > h.noted {
			h.journal.note(event{Kind: confirmed, Hold: h.id, At: h.last})
		}
		h.journal.note(event{Kind: lossSeen, Hold: h.id, At: now(), Text: err.Error()})
		return at, false
	}
	h.last = at
	if write || at-h.noted >= noteEvery {
		h.noted = at
		h.journal.note(event{Kind: confirmed, Hold: h.id, At: at})
	}
	return at, true
}

// end stops the background checks before an Unlock. It reports whether the lock
// was still held.
func (h *hold) end() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.checkLocked(true)
	h.over = true
	return ok
}

// watcher checks all held locks of a worker in the background.
type watcher struct {
	mu    sync.Mutex
	holds map[*hold]bool
	stop  chan struct{}
	done  sync.WaitGroup
}

const checkEvery = 10 * time.Millisecond

func newWatcher() *watcher {
	w := &watcher{holds: make(map[*hold]bool), stop: make(chan struct{})}
	w.done.Go(w.run)
	return w
}

func (w *watcher) run() {
	ticker := time.NewTicker(checkEvery)
	defer ticker.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-ticker.C:
		}
		for _, h := range w.all() {
			h.check()
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
