package recipes

import (
	"context"
	"sync"
	"time"
)

// patience is a context that ends after some time, as one of context.WithTimeout does. It makes
// its channel and starts its timer only when somebody waits for its end, which nobody does where
// the store answers at once.
type patience struct {
	until time.Time

	mu    sync.Mutex
	err   error
	done  chan struct{} // nil until it is asked for
	timer *time.Timer
}

func newPatience(d time.Duration) *patience { return &patience{until: time.Now().Add(d)} }

func (p *patience) Deadline() (time.Time, bool) { return p.until, true }
func (p *patience) Value(any) any               { return nil }

func (p *patience) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == nil {
		p.done = make(chan struct{})
		if p.err != nil {
			close(p.done)
		} else {
			p.timer = time.AfterFunc(time.Until(p.until), func() { p.end(context.DeadlineExceeded) })
		}
	}
	return p.done
}

func (p *patience) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil && p.done == nil && !time.Now().Before(p.until) {
		p.err = context.DeadlineExceeded
	}
	return p.err
}

// cancel frees what the context holds. It has to be called.
func (p *patience) cancel() { p.end(context.Canceled) }

func (p *patience) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return
	}
	p.err = err
	if p.done != nil {
		p.timer.Stop()
		close(p.done)
	}
}
