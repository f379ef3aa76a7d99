package session

import (
	"context"
	"time"
)

const tidyPause = time.Hour

// tidy removes rows of unused queues, every hour until the lease ends. They
// would otherwise accumulate in programs that keep locking new names.
func (s *Session) tidy() {
	ctx, cancel := s.lease.Context()
	defer cancel()
	for Sleep(ctx, tidyPause) {
		for s.tidyOnce(ctx) {
		}
	}
}

// tidyOnce removes one batch of rows and reports whether there may be more. It
// ignores errors, because the next run retries.
func (s *Session) tidyOnce(ctx context.Context) (more bool) {
	ctx, cancel := s.limit(ctx)
	defer cancel()
	more, err := s.store.Tidy(ctx)
	return more && err == nil
}
