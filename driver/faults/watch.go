package faults

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// forwarder passes a driver's watch events on to the caller. A single goroutine
// keeps them in order.
type forwarder struct {
	session *session
	request Request // the request that armed the watch
	inner   driver.Watch
	outer   chan driver.Cause
	ctx     context.Context // ends with the session or by Stop
	stop    func()
}

// forward returns a watch that passes on the events of inner with faults, and
// ends after endAfter, unless that is zero.
func (s *session) forward(inner driver.Watch, r Request, endAfter time.Duration) driver.Watch {
	if inner.C == nil || s.connector.plan == nil {
		return inner
	}
	r.Stage, r.Err = StageNews, nil
	ctx, cancel := context.WithCancel(s.life)
	w := &forwarder{session: s, request: r, inner: inner, outer: make(chan driver.Cause, 1), ctx: ctx}
	w.stop = func() {
		cancel()
		inner.Stop()
	}
	first, heard, ended := peek(inner.C)
	// If the watched node is not in the queue, the watch must have ended
	// when Watch returns. No fault may delay that.
	if ended || !s.start(func() { w.run(first, heard, endAfter) }) {
		w.end()
	}
	return driver.NewWatch(w.outer, w.stop)
}

func peek(c <-chan driver.Cause) (cause driver.Cause, heard, ended bool) {
	select {
	case cause, open := <-c:
		return cause, open, !open
	default:
		return driver.Changed, false, false
	}
}

// run passes on events until the watch ends. If heard is true, the argument
// first is an event received earlier.
func (w *forwarder) run(first driver.Cause, heard bool, endAfter time.Duration) {
	defer w.end()
	var early <-chan time.Time
	if endAfter > 0 {
		t := time.NewTimer(endAfter)
		defer t.Stop()
		early = t.C
	}
	goesOn := !heard || w.passReleased(first)
	for goesOn {
		select {
		case cause, open := <-w.inner.C:
			if goesOn = open && w.passReleased(cause); !open {
				w.passEnd()
			}
		case <-early:
			w.passEnd()
			return
		case <-w.ctx.Done():
			return
		}
	}
}

func (w *forwarder) end() {
	w.stop()
	close(w.outer)
}

// passReleased sends Released, unless the event is lost or the driver's watch
// has ended. It reports whether the watch goes on.
func (w *forwarder) passReleased(cause driver.Cause) (goesOn bool) {
	if cause != driver.Released || !w.decide(cause) {
		return false
	}
	if _, _, ended := peek(w.inner.C); ended || w.over() {
		return false
	}
	select {
	case w.outer <- cause:
		return true
	default: // a driver must send Released only once
		return false
	}
}

func (w *forwarder) passEnd() { _ = w.decide(driver.Changed) }

func (w *forwarder) decide(cause driver.Cause) bool {
	if w.over() {
		return false
	}
	r := w.request
	r.Cause = cause
	_, err := w.session.connector.decide(w.ctx, r)
	return err == nil
}

func (w *forwarder) over() bool { return w.session.Err() != nil || w.ctx.Err() != nil }
