package session

import (
	"context"
	"time"
)

// tidyPause is the time between two clean-ups of a session.
const tidyPause = time.Hour

// tidy removes the rows that are left of queues, until the lease has ended. A
// program that locks a new name for each order, and runs for months, would
// otherwise leave a row of each name.
func (s *Session) tidy() {
	ctx, cancel := s.lease.Context()
	defer cancel()
	for Sleep(ctx, tidyPause) {
		for s.tidyOnce(ctx) {
		}
	}
}

// tidyOnce removes some of these rows, and reports whether there may be more. It
// ignores errors, because the next clean-up tries again.
func (s *Session) tidyOnce(ctx context.Context) (more bool) {
	ctx, cancel := s.limit(ctx)
	defer cancel()
	more, err := s.store.Tidy(ctx)
	return more && err == nil
}
