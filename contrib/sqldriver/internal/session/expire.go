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

// expire ends the sessions of dead processes, until the lease has ended.
func (s *Session) expire() {
	ctx, cancel := s.lease.Context()
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return
		case d := <-s.looks.expire:
			if !sleep(ctx, d) {
				return
			}
			for ended := true; ended; {
				var err error
				if ended, err = s.store.Expire(ctx); err != nil {
					break // the next heartbeat makes this loop try again
				}
			}
		}
	}
}

// sleep waits for d and reports whether ctx has not ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
