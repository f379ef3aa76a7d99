package session

import (
	"context"
	"time"
)

// beat sends a heartbeat, and plans a search for the deadline that it has seen.
// Another heartbeat that is such a search plans none, or the shortest session
// would set the pace of all that wait.
func (s *Session) beat(ctx context.Context) error {
	next, err := s.renew(ctx)
	if err == nil && next < s.config.Timeout/8 && (next > 0 || s.expirer != nil) {
		select {
		case s.due <- max(next, time.Millisecond):
		default: // the next heartbeat tells again
		}
	}
	return err
}

func (s *Session) renew(ctx context.Context) (next time.Duration, err error) {
	if next, err = s.store.Beat(ctx); err == nil {
		// A server may report success for a heartbeat that was cancelled before
		// it was replicated.
		err = ctx.Err()
	}
	return next, s.endIfGone(err)
}

// expirePause is the interval at which a session that waits searches for expired
// sessions. With a long session timeout, heartbeats are too rare for this.
const expirePause = 2 * time.Second

// expire ends the sessions of dead processes until its own ends: when the
// deadline is due that a heartbeat has seen, and, while the session waits, at
// least every two seconds.
func (s *Session) expire() {
	search := time.NewTicker(expirePause)
	defer search.Stop()
	var due <-chan time.Time
	limit := expirePause
	for {
		select {
		case <-s.lease.Done():
			return
		case d := <-s.due:
			due = time.After(d)
			continue
		case <-search.C:
			if s.config.Timeout/8 <= expirePause || !s.watches.Waiting() {
				continue // heartbeats see each deadline in time
			}
		case <-due:
			if s.expirer == nil && !s.watches.Waiting() {
				continue // the next heartbeat is soon enough
			}
		}
		limit = s.expireAll(limit)
	}
}

// expireAll ends all expired sessions, and returns the time limit of the next
// search. A request that meets it doubles it, because the server may still be
// carrying that request out, and repeats would pile up.
func (s *Session) expireAll(limit time.Duration) (next time.Duration) {
	for more := true; more; {
		late := false
		err := s.within(limit, func(ctx context.Context) (err error) {
			more, err = s.expireOnce(ctx)
			late = err != nil && ctx.Err() != nil
			return err
		})
		if late {
			return min(2*limit, s.limit())
		}
		more = more && err == nil // after an error, the next search does the rest
	}
	return expirePause
}

func (s *Session) expireOnce(ctx context.Context) (more bool, err error) {
	if s.expirer != nil {
		return s.expirer.Expire(ctx)
	}
	return false, s.lease.Do(func() error {
		_, err := s.renew(ctx)
		return err
	})
}

// tidyPause is the time between two runs of a Tidier.
const tidyPause = time.Hour

// tidy has the store remove what unused queues leave behind. Otherwise it would
// accumulate in programs that keep locking new names.
func (s *Session) tidy() {
	t := optional[Tidier](s.store)
	if t == nil {
		return
	}
	for again := true; again; again = Sleep(s.life, tidyPause) {
		for more := true; more; {
			err := s.ask(func(ctx context.Context) (err error) {
				more, err = t.Tidy(ctx)
				return err
			})
			more = more && err == nil // after an error, the next run does the rest
		}
	}
}
