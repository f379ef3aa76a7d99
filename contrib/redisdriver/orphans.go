package redisdriver

import (
	"context"
	"sync"
)

// orphans holds a session's failed Creates that are not cancelled yet. Their
// nodes may exist, or may be created later.
type orphans struct {
	mu         sync.Mutex
	operations []string
	running    bool
}

// cancel has the server cancel a Create whose outcome is unknown, so that it
// leaves no node. A goroutine retries until the server has confirmed that or
// the session ends.
func (s *session) cancel(operation string) {
	s.cancelLater(operation)
	s.orphans.mu.Lock()
	defer s.orphans.mu.Unlock()
	if !s.orphans.running {
		s.orphans.running = s.calls.Go(s.cancelOrphans)
	}
}

func (s *session) cancelOrphans() {
	pauses := s.settings.newRetries()
	for {
		operations := s.nextOrphans()
		if len(operations) == 0 || s.lease.Err() != nil {
			return
		}
		if s.cancelNow(operations) == nil {
			pauses.reset()
			continue
		}
		s.cancelLater(operations...)
		if !s.link.pause(pauses.next()) {
			return
		}
	}
}

func (s *session) cancelNow(operations []string) error {
	ctx, cancel := context.WithTimeout(s.link.life, s.settings.timeout/4)
	defer cancel()
	args := []any{s.id}
	for _, o := range operations {
		args = append(args, o)
	}
	_, err := s.link.eval(ctx, s.link.upkeep, cancelScript, args...)
	s.endIfUnknown(err)
	return err
}

// maxCancels limits the number of Creates cancelled by one request. Without
// batches, cancelling would not keep up with callers that time out faster than
// the store answers.
const maxCancels = 100

func (s *session) nextOrphans() []string {
	o := &s.orphans
	o.mu.Lock()
	defer o.mu.Unlock()
	n := min(len(o.operations), maxCancels)
	next := o.operations[:n:n]
	o.operations = o.operations[n:]
	o.running = n > 0
	return next
}

func (s *session) cancelLater(operations ...string) {
	s.orphans.mu.Lock()
	defer s.orphans.mu.Unlock()
	s.orphans.operations = append(s.orphans.operations, operations...)
}
