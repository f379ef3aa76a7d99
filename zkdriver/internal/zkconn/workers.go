package zkconn

import (
	"sync"
	"sync/atomic"
)

// workers runs jobs on reusable goroutines. A new goroutine would cost more
// than a short request, because its stack has to grow.
type workers struct {
	once sync.Once
	jobs chan func()
	quit chan struct{}
	idle atomic.Int32
	wg   sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

const maxIdle = 16

func (w *workers) init() {
	w.once.Do(func() { w.jobs, w.quit = make(chan func()), make(chan struct{}) })
}

// run starts job on a worker without waiting for it. After close it returns
// false.
func (w *workers) run(job func()) bool {
	w.init()
	select {
	case w.jobs <- job:
		return true
	default:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.wg.Go(func() { w.loop(job) })
	return true
}

func (w *workers) loop(job func()) {
	for {
		job()
		if w.idle.Add(1) > maxIdle {
			w.idle.Add(-1)
			return
		}
		select {
		case job = <-w.jobs:
			w.idle.Add(-1)
		case <-w.quit:
			return
		}
	}
}

// close waits until every job is done.
func (w *workers) close() {
	w.init()
	w.mu.Lock()
	if !w.closed {
		w.closed = true
		close(w.quit)
	}
	w.mu.Unlock()
	w.wg.Wait()
}
