package zkconn

import "sync"

// workers runs jobs, each on a goroutine of its own, until close.
type workers struct {
	wg sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

// run starts job on a new goroutine. After close it returns false without
// running job.
func (w *workers) run(job func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.wg.Go(job)
	return true
}

// close makes run refuse further jobs, and waits until all running ones are
// done.
func (w *workers) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.wg.Wait()
}
