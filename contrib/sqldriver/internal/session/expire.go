package session

import (
	"context"
	"time"
)

// expireIn schedules a search for expired sessions after d, replacing a search
// already scheduled.
func (s *Session) expireIn(d time.Duration) {
	select {
	case s.looks.expire <- d:
	default: // the next heartbeat calls expireIn again
	}
}

// expirePause is the interval at which a waiting session searches for expired
// sessions. With a long session timeout, heartbeats are too rare for this
// search.
const expirePause = 2 * time.Second

// expire looks for sessions of dead processes and ends them. It returns when
// the lease of its own session ends.
func (s *Session) expire() {
	ctx, cancel := s.lease.Context()
	defer cancel()
	var search <-chan time.Time // fires every expirePause; nil if heartbeats are frequent enough
	if s.timeout/8 > expirePause {
		ticker := time.NewTicker(expirePause)
		defer ticker.Stop()
		search = ticker.C
	}
	var due <-chan time.Time // fires when the search scheduled by expireIn is due
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
			due = time.After(d)
			continue
		case <-due:
		}
		limit = s.expireAll(ctx, limit)
	}
}

// expireAll ends all expired sessions, and returns the timeout for the next
// search. A request that times out doubles it, because the server may still be
// executing that request and retries would pile up.
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
		ended = ended && err == nil // after an error, leave the rest to the next search
		cancel()
	}
	return limit
}

// Sleep waits for d, and reports whether it did so before ctx ended.
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
