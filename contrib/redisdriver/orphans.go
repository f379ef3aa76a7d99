package redisdriver

import (
	"context"
	"sync"
)

// orphans are the operations of Creates that have failed, and whose nodes may exist or
// may be made later.
type orphans struct {
	mu         sync.Mutex
	operations []string
	running    bool
}

// cancel cancels the operation of a Create in the background, until the store has
// done so or the session has ended.
func (s *session) cancel(operation string) {
	s.orphans.mu.Lock()
	defer s.orphans.mu.Unlock()
	s.orphans.operations = append(s.orphans.operations, operation)
	if !s.orphans.running {
		s.orphans.running = s.calls.Go(s.cancelOrphans)
	}
}

func (s *session) cancelOrphans() {
	pauses := s.settings.newRetries()
	for {
		operation, found := s.nextOrphan()
		if !found || s.lease.Err() != nil {
			return
		}
		// A key of another type, which another program has made, has no node.
		if err := s.cancelOne(operation); err == nil || replied(err, "WRONGTYPE") {
			pauses.reset()
			continue
		}
		s.cancelLater(operation)
		if !s.link.pause(pauses.next()) {
			return
		}
	}
}

func (s *session) cancelOne(operation string) error {
	ctx, cancel := context.WithTimeout(s.link.life, s.settings.timeout/4)
	defer cancel()
	_, err := s.link.eval(ctx, s.link.upkeep, cancelScript, s.id, operation)
	s.endIfUnknown(err)
	return err
}

func (s *session) nextOrphan() (operation string, found bool) {
	o := &s.orphans
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.running = len(o.operations) > 0; !o.running {
		return "", false
	}
	operation, o.operations = o.operations[0], o.operations[1:]
	return operation, true
}

func (s *session) cancelLater(operation string) {
	s.orphans.mu.Lock()
	defer s.orphans.mu.Unlock()
	s.orphans.operations = append(s.orphans.operations, operation)
}
