package memdriver

import (
	"sync"
	"sync/atomic"
	"time"
)

// line is the connection of one session with the store, and what is wrong with
// it. As long as nothing is, a request is a function call.
type line struct {
	own   breaker  // this session's connection
	reach *breaker // what all sessions share

	faulty atomic.Bool // there is a delay, or something will be lost
	mu     sync.Mutex
	delay  time.Duration
	losses map[Op][]loss
}

// loss is what becomes of one request.
type loss int

const (
	delivered loss = iota
	requestLost
	replyLost
)

// clear reports whether nothing is wrong with the line.
func (l *line) clear() bool {
	return !l.faulty.Load() && l.own.whole() && l.reach.whole()
}

// travel brings what was sent at that time from one end to the other, which
// takes half the delay, and longer where the line is cut. It returns false if
// quit closes first.
func (l *line) travel(sent time.Time, quit <-chan struct{}) bool {
	if !sleep(l.halfDelay()-time.Since(sent), quit) {
		return false
	}
	for !l.own.whole() || !l.reach.whole() {
		if !l.own.wait(quit) || !l.reach.wait(quit) {
			return false
		}
	}
	return true
}

// sleep returns false if quit closes before d has passed.
func sleep(d time.Duration, quit <-chan struct{}) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-quit:
		return false
	}
}

func (l *line) halfDelay() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.delay / 2
}

func (l *line) setDelay(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
	l.judge()
}

func (l *line) lose(op Op, what loss) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.losses == nil {
		l.losses = make(map[Op][]loss)
	}
	l.losses[op] = append(l.losses[op], what)
	l.judge()
}

// fate returns what becomes of the next request of that kind.
func (l *line) fate(op Op) loss {
	l.mu.Lock()
	defer l.mu.Unlock()
	fates := l.losses[op]
	if len(fates) == 0 {
		return delivered
	}
	if l.losses[op] = fates[1:]; len(fates) == 1 {
		delete(l.losses, op)
	}
	l.judge()
	return fates[0]
}

func (l *line) judge() { l.faulty.Store(l.delay > 0 || len(l.losses) > 0) }

// breaker is a point at which connections can be cut, several times over.
type breaker struct {
	open   atomic.Bool // cut
	mu     sync.Mutex
	cuts   int
	mended chan struct{} // closes when the last cut heals
}

func (b *breaker) whole() bool { return !b.open.Load() }

func (b *breaker) cut() (heal func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cuts == 0 {
		b.mended = make(chan struct{})
		b.open.Store(true)
	}
	b.cuts++
	return sync.OnceFunc(b.heal)
}

func (b *breaker) heal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cuts--; b.cuts == 0 {
		b.open.Store(false)
		close(b.mended)
	}
}

// wait waits until the cuts have healed. It returns false if quit closes first.
func (b *breaker) wait(quit <-chan struct{}) bool {
	b.mu.Lock()
	cuts, mended := b.cuts, b.mended
	b.mu.Unlock()
	if cuts == 0 {
		return true
	}
	select {
	case <-mended:
		return true
	case <-quit:
		return false
	}
}
