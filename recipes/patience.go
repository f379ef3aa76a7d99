package recipes

import (
	"context"
	"sync"
	"time"
)

// patience is a context that ends after some time, as one of context.WithTimeout does. It looks at
// the clock, makes its channel and starts its timer only when somebody asks for its end, which
// nobody does where the store answers at once: the time counts from then.
type patience struct {
	limit time.Duration

	mu    sync.Mutex
	until time.Time // zero until it is asked for
	err   error
	done  chan struct{} // nil until it is asked for
	timer *time.Timer
}

func newPatience(limit time.Duration) *patience { return &patience{limit: limit} }

func (p *patience) Deadline() (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end(), true
}

// end is called with mu held.
func (p *patience) end() time.Time {
	if p.until.IsZero() {
		p.until = time.Now().Add(p.limit)
	}
	return p.until
}

func (p *patience) Value(any) any { return nil }

func (p *patience) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done == nil {
		p.done = make(chan struct{})
		if p.err != nil {
			close(p.done)
		} else {
			p.timer = time.AfterFunc(time.Until(p.end()), func() { p.stop(context.DeadlineExceeded) })
		}
	}
	return p.done
}

func (p *patience) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil && p.done == nil && !p.until.IsZero() && !time.Now().Before(p.until) {
		p.err = context.DeadlineExceeded
	}
	return p.err
}

// cancel frees what the context holds. It has to be called.
func (p *patience) cancel() { p.stop(context.Canceled) }

func (p *patience) stop(err error) {
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
