package recipes

import (
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// session is a driver's session with what recipes keep beside it: the locks that it won and the
// nodes that remain to be removed.
type session struct {
	driver.Session
	sessions *Sessions
	replacer driver.Replacer // nil where the driver has none
	releaser driver.Releaser // likewise
	reader   driver.Reader   // likewise

	mu      sync.Mutex
	young   holds       // locks won lately, oldest first
	guarded holds       // locks whose node is watched
	timer   *time.Timer // runs while there are young ones
	armed   bool
	ended   error
}

// newSession finds out, here and nowhere else, what the driver can do beyond the contract.
func newSession(c *Sessions, ds driver.Session) *session {
	s := &session{Session: ds, sessions: c}
	s.replacer, _ = ds.(driver.Replacer)
	s.releaser, _ = ds.(driver.Releaser)
	s.reader, _ = ds.(driver.Reader)
	return s
}

// mourn waits for the end of the session and tells its locks.
func (s *session) mourn() {
	<-s.Done()
	cause := s.Err()
	if !s.end(cause) {
		return // the client was closed, which closes the session too
	}
	s.sessions.options.logger.Warn("dlock: session ended", "error", cause)
	s.sessions.endedBy(cause)
	if err := s.Session.Close(); err != nil {
		s.sessions.options.logger.Debug("dlock: ended session", "error", err)
	}
}

// end loses all locks of the session, and those that it might still win. It returns false if
// that was done before.
func (s *session) end(cause error) bool {
	s.mu.Lock()
	first := s.ended == nil
	if first {
		s.ended = cause
	}
	lost := append(s.young.all(), s.guarded.all()...)
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	var reports []func()
	for _, h := range lost {
		reports = append(reports, h.lose(cause))
	}
	for _, report := range reports { // when everybody knows: hooks may be slow
		report()
	}
	return first
}

// why returns why the session ended: the client's Close explains everything after it.
func (s *session) why() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return s.ended
	}
	return s.Err()
}

// add makes a lock that was just won known to the session, so that it learns of the session's
// end. It fails if that has come.
func (s *session) add(h *hold) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return s.ended
	}
	s.young.push(h)
	if !s.armed {
		s.armed = true
		s.wakeIn(guardAfter)
	}
	return nil
}

func (s *session) remove(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.unlink()
}

// heldSince returns since when the session holds a lock, by node.
func (s *session) heldSince(lock string) map[driver.Node]time.Time {
	s.mu.Lock()
	held := append(s.young.all(), s.guarded.all()...)
	s.mu.Unlock()
	since := make(map[driver.Node]time.Time)
	for _, h := range held {
		if h.m.name == lock {
			since[h.placeNow().Node] = h.since
		}
	}
	return since
}

func (s *session) wakeIn(d time.Duration) {
	if s.timer == nil {
		s.timer = time.AfterFunc(d, s.guardYoung)
	} else {
		s.timer.Reset(d)
	}
}

// guardYoung has the nodes of those locks watched that have been held for a while.
func (s *session) guardYoung() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return
	}
	for h := s.young.first(); h != nil; h = s.young.first() {
		if left := guardAfter - time.Since(h.since); left > 0 {
			s.wakeIn(left)
			return
		}
		h.unlink()
		s.guarded.push(h)
		s.sessions.spawn(h.guard)
	}
	s.armed = false
}
