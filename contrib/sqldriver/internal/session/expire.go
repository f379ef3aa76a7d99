package session

import (
	"context"
	"time"
)

// expireIn makes the goroutine that runs expire wait for d and then end the
// sessions whose deadlines have passed. If an earlier call of expireIn has not been
// taken up yet, expireIn does nothing.
func (s *Session) expireIn(d time.Duration) {
	select {
	case s.looks.expire <- d:
	default: // the next heartbeat calls expireIn again
	}
}

// expirePause is the time between two searches for dead sessions while the session has
// watches. Its own heartbeats may be minutes apart, and the predecessor of a waiter may
// belong to a session with a short timeout.
const expirePause = 2 * time.Second

// expire ends the sessions of dead processes, until the lease has ended.
func (s *Session) expire() {
	ctx, cancel := s.lease.Context()
	defer cancel()
	var search <-chan time.Time // nil if heartbeats are frequent enough
	if s.timeout/8 > expirePause {
		ticker := time.NewTicker(expirePause)
		defer ticker.Stop()
		search = ticker.C
	}
	limit := expirePause
	for {
		select {
		case <-ctx.Done():
			return
		case <-search:
			if s.watches.Len() == 0 {
				continue
			}
		case d := <-s.looks.expire:
			if !Sleep(ctx, d) {
				return
			}
		}
		limit = s.expireAll(ctx, limit)
	}
}

// expireAll ends sessions until none is left to end, and returns the time limit for the
// next call. A request without an answer doubles the limit, up to [Limit], because the
// server may go on with that request: retrying it often would pile up such requests.
func (s *Session) expireAll(ctx context.Context, limit time.Duration) (next time.Duration) {
	for ended := true; ended; {
		one, cancel := context.WithTimeout(ctx, limit)
		var err error
		ended, err = s.store.Expire(one)
		if err != nil && one.Err() != nil {
			limit = min(2*limit, Limit(s.timeout))
		} else {
			limit = expirePause
		}
		ended = ended && err == nil // after an error, the next heartbeat or search tries again
		cancel()
	}
	return limit
}

// Sleep waits for d and reports whether ctx has not ended before.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
