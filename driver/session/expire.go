package session

import (
	"context"
	"time"
)

// beat sends a heartbeat and plans a search for expired sessions. A search
// plans no other, so that sessions do not search all the time.
func (s *Session) beat(ctx context.Context) error {
	next, err := s.renew(ctx)
	if err == nil && next < s.config.Timeout/8 && (next > 0 || s.expirer != nil) {
		select {
		case s.due <- max(next, time.Millisecond):
		default: // the next heartbeat plans a search again
		}
	}
	return err
}

func (s *Session) renew(ctx context.Context) (next time.Duration, err error) {
	if next, err = s.store.Beat(ctx); err == nil {
		// A server may report success although the heartbeat was cancelled
		// before it was replicated. It then counts as failed.
		err = ctx.Err()
	}
	return next, s.endIfGone(err)
}

// expirePause is how often a waiting session searches for expired sessions. If
// the session timeout is long, heartbeats are too rare for this.
const expirePause = 2 * time.Second

// expire ends expired sessions when a planned search is due and, while the
// session waits for a node, at least every two seconds.
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

// expireAll ends all expired sessions. The time limit doubles after a slow
// request, so that repeats do not pile up in the server.
func (s *Session) expireAll(limit time.Duration) (next time.Duration) {
	for more := true; more; {
		late := false
		err := s.within(s.life, limit, func(ctx context.Context) (err error) {
			more, err = s.expireOnce(ctx)
			late = err != nil && ctx.Err() != nil
			return err
		})
		if late {
			return min(2*limit, s.limit())
		}
		more = more && err == nil // the next call does the rest
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

const tidyPause = time.Hour

// tidy makes the store remove what unused queues leave behind, which would
// accumulate if programs keep locking new names.
func (s *Session) tidy() {
	t := optional[Tidier](s.store)
	if t == nil {
		return
	}
	for again := true; again; again = Sleep(s.life, tidyPause) {
		for more := true; more; {
			err := s.ask(s.life, func(ctx context.Context) (err error) {
				more, err = t.Tidy(ctx)
				return err
			})
			more = more && err == nil // the next run does the rest
		}
	}
}
