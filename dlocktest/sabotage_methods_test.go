package dlocktest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

var methodSabotages = []sabotage{
	{"ignores ctx", "a client library without contexts",
		before(faults.OpList, func(r *request) { r.ctx = context.WithoutCancel(r.ctx) })},
	{"returns errors that match none of package driver", "returning the client library's errors as they are",
		on(faults.OpList, func(r *request, send func()) {
			if send(); r.err != nil && !errors.Is(r.err, driver.ErrBadName) {
				r.err = errPlain("connection refused")
			}
		})},
	{"marks the error for a missing node as one that may pass", "one mark for all errors",
		confuses(faults.OpDelete, driver.ErrGone, errors.Join(driver.ErrUnavailable, driver.ErrGone))},
	{"marks the error for a bad name as one that may pass", "one mark for all errors",
		confuses(faults.OpList, driver.ErrBadName, errors.Join(driver.ErrUnavailable, driver.ErrBadName))},
	{"carries out calls after the end of the session", "a connection pool that serves any caller",
		confuses(faults.OpList, driver.ErrSessionEnded, nil)},
	{"supports Read in some calls only", "asking the server for its version in each call, in a cluster with several versions",
		func(s *faulty) {
			var asked atomic.Int32
			refuses(faults.OpRead, errors.ErrUnsupported, func(*request) bool { return asked.Add(1)%3 == 0 })(s)
		}},
	{"ends with the ctx of Connect", "deriving the session's own context from it",
		func(s *faulty) {
			s.connected = func(ctx context.Context) { context.AfterFunc(ctx, func() { _ = s.base.Close() }) }
		}},
	{"gives a request a deadline and returns its error", "a time limit by context.WithTimeout",
		on(faults.OpList, func(r *request, send func()) {
			ctx := r.ctx
			limited, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			r.ctx = limited
			if send(); r.err != nil && limited.Err() != nil && ctx.Err() == nil && r.s.base.Err() == nil {
				r.err = fmt.Errorf("%w: %w", driver.ErrUnavailable, limited.Err())
			}
		})},
	{"makes one call at a time", "a mutex around the connection: a call that waits for it ignores ctx",
		func(s *faulty) {
			var mu sync.Mutex
			for _, op := range []faults.Op{faults.OpCreate, faults.OpList, faults.OpDelete} {
				s.on(op, func(_ *request, send func()) {
					mu.Lock()
					defer mu.Unlock()
					send()
				})
			}
		}},
}
