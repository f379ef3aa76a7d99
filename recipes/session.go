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
	client *Client

	mu      sync.Mutex
	young   holds       // locks won lately, oldest first
	guarded holds       // locks whose node is watched
	timer   *time.Timer // runs while there are young ones
	armed   bool
	ended   error

	lostHolds int           // lost, and not unlocked by every caller that has a Lock of it
	unlocked  chan struct{} // lostHolds has come to zero

	left     chan struct{} // closes when the session has ended here, and in the store if leaveErr is nil
	leaveErr error
}

func newSession(c *Client, ds driver.Session) *session {
	return &session{Session: ds, client: c, unlocked: make(chan struct{}, 1), left: make(chan struct{})}
}

// attend waits for the end of the session, tells its locks, and ends the session
// in the store as well.
func (s *session) attend() {
	defer close(s.left)
	select {
	case <-s.Done():
	case <-s.client.done:
	}
	if s.client.closedOr(nil) != nil {
		s.end(ErrClosed)
		s.leaveErr = s.leave()
		s.client.endedBy(ErrClosed)
	} else {
		s.lost(s.Err())
		s.leaveErr = s.leave()
	}
	if s.leaveErr == nil {
		s.client.forget(s)
	}
}

// lost tells the locks of a session that has ended without a Close of the
// client. It returns once the callers that held them have unlocked them.
func (s *session) lost(cause error) {
	s.end(cause)
	s.client.options.logger.Warn("dlock: session ended", "error", cause)
	s.client.endedBy(cause)
	for s.anyLostHold() {
		select {
		case <-s.unlocked:
		case <-s.client.done:
			return
		}
	}
}

// leave ends the session in the store. If the lease has run out here, the store
// may keep the session and its nodes for a while, and they would block other
// contenders, those of this client among them. While the store cannot be
// reached, leave tries again, at once when a new session has begun. It gives up
// only when the client is closed, after a last try.
func (s *session) leave() error {
	pace := retries{newBackOff: s.client.options.backOff}
	for {
		begun := s.client.nextBegun()
		closing := s.client.closedOr(nil) != nil
		err := s.Session.Close()
		if err == nil || closing {
			return err
		}
		s.client.options.logger.Debug("dlock: session has not ended in the store yet", "error", err)
		s.pauseLeaving(pace.nextTireless(), begun)
	}
}

func (s *session) pauseLeaving(d time.Duration, begun <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-begun:
	case <-s.client.done:
	}
}

// holdLost counts a hold that was lost while callers have Locks of it.
func (s *session) holdLost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lostHolds++
}

// lostUnlocked is called when the last Lock of such a hold has been unlocked.
func (s *session) lostUnlocked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lostHolds--; s.lostHolds == 0 {
		select {
		case s.unlocked <- struct{}{}:
		default:
		}
	}
}

// anyLostHold reports whether a caller may not have noticed yet that its lock
// was lost.
func (s *session) anyLostHold() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lostHolds > 0
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

// holds returns the node with which this client holds a lock now, or nothing.
func (c *Client) holds(lock string) string {
	s := c.live.Load()
	if s == nil {
		return ""
	}
	s.mu.Lock()
	all := append(s.young.all(), s.guarded.all()...)
	s.mu.Unlock()
	for _, h := range all {
		if h.m.name == lock && !h.gone() {
			return h.placeNow().Name
		}
	}
	return ""
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
		s.client.spawn(h.guard)
	}
	s.armed = false
}
