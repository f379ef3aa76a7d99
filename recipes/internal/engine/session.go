package engine

import (
	"log/slog"
	"maps"
	"slices"
	"sync"

	"github.com/dlock-go/dlock/driver"
)

// Client holds what a session needs of its client.
type Client struct {
	// Go runs f on a goroutine that Close of the client waits for. It returns
	// false, and does not run f, once Close has begun.
	Go func(f func()) bool
	// Closed is closed when Close begins.
	Closed <-chan struct{}
	// BackOff paces the requests of the reaper.
	BackOff func() BackOff
	Logger  *slog.Logger
}

// Session is a driver's session with the entries that were granted in it.
type Session struct {
	driver.Session
	client *Client

	mu      sync.Mutex
	granted map[int64]*Entry // the granted entries, by Entry.number
	grants  int64            // how many entries were granted so far
	ended   error            // the cause with which End was first called; nil before

	lossesInUse int           // number of lost entries whose caller may still work as if it held the lock
	noLossInUse chan struct{} // receives a value when lossesInUse becomes zero
}

// NewSession returns a session of the client without entries.
func NewSession(s driver.Session, c *Client) *Session {
	return &Session{
		Session:     s,
		client:      c,
		granted:     make(map[int64]*Entry),
		noLossInUse: make(chan struct{}, 1),
	}
}

// all returns the granted entries, oldest grant first.
func (s *Session) all() []*Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries := make([]*Entry, 0, len(s.granted))
	for _, number := range slices.Sorted(maps.Keys(s.granted)) {
		entries = append(entries, s.granted[number])
	}
	return entries
}

// Granted returns the granted entries in a queue, oldest grant first.
func (s *Session) Granted(queue string) []*Entry {
	return slices.DeleteFunc(s.all(), func(e *Entry) bool { return e.queue.Name != queue })
}

// End ends the session for its entries: the granted ones are lost, and no other
// is granted. It does not close the driver's session. The first cause counts.
func (s *Session) End(cause error) {
	s.mu.Lock()
	if s.ended == nil {
		s.ended = cause
	}
	s.mu.Unlock()
	var reports []func()
	for _, e := range s.all() {
		reports = append(reports, e.lose(cause))
	}
	// All owners know by now, so that a slow hook delays none of them.
	for _, report := range reports {
		report()
	}
}

// Cause returns the first cause of End or, before End, the error of the
// driver's session.
func (s *Session) Cause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return s.ended
	}
	return s.Err()
}

// lossBegins counts a lost entry whose caller may still work as if it held the
// lock.
func (s *Session) lossBegins() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lossesInUse++
}

func (s *Session) lossEnds() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lossesInUse--; s.lossesInUse == 0 {
		select {
		case s.noLossInUse <- struct{}{}:
		default:
		}
	}
}

func (s *Session) lossInUse() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lossesInUse > 0
}

// AwaitLossesSeen returns when the callers of all lost entries have given their
// locks back, or when stop closes.
func (s *Session) AwaitLossesSeen(stop <-chan struct{}) {
	for s.lossInUse() {
		select {
		case <-s.noLossInUse:
		case <-stop:
			return
		}
	}
}
