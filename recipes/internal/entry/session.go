package entry

import (
	"errors"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dlock-go/dlock/driver"
)

// Client has what the sessions of a client need: functions and settings.
type Client struct {
	// Go runs f on a goroutine that the client's Close waits for. Once Close
	// has begun, it returns false instead.
	Go func(f func()) bool
	// Draining is closed when no more entries may be granted.
	Draining <-chan struct{}
	// BackOff paces the retries of the reaper.
	BackOff func() BackOff
	Logger  *slog.Logger
}

// Grants is a driver's session together with the entries granted in it.
type Grants struct {
	driver.Session
	client *Client
	prompt atomic.Bool // whether the latest Create was answered promptly

	mu       sync.Mutex
	byNumber map[int64]*Entry // by Entry.number
	grants   int64            // number of grants so far
	left     map[string]*leftover
	ended    error // the cause of the first End; nil before

	lossesInUse int           // lost entries whose callers may still be working
	noLossInUse chan struct{} // signalled when lossesInUse becomes zero
}

// NewGrants returns the session s of client c, in which nothing is granted yet.
func NewGrants(s driver.Session, c *Client) *Grants {
	return &Grants{
		Session:     s,
		client:      c,
		byNumber:    make(map[int64]*Entry),
		left:        make(map[string]*leftover),
		noLossInUse: make(chan struct{}, 1),
	}
}

func (s *Grants) all() []*Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	entries := make([]*Entry, 0, len(s.byNumber))
	for _, number := range slices.Sorted(maps.Keys(s.byNumber)) {
		entries = append(entries, s.byNumber[number])
	}
	return entries
}

// Granted returns the granted entries in a queue, oldest grant first.
func (s *Grants) Granted(queue string) []*Entry {
	return slices.DeleteFunc(s.all(), func(e *Entry) bool { return e.queue.Name != queue })
}

// End marks all granted entries as lost, and prevents further grants. It does
// not close the driver's session. Only the first cause is kept.
func (s *Grants) End(cause error) {
	s.mu.Lock()
	if s.ended == nil {
		s.ended = cause
	}
	s.mu.Unlock()
	for _, e := range s.all() {
		e.lose(cause)
	}
}

// Cause returns the cause of the first End or, before that, the error of the
// driver's session.
func (s *Grants) Cause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return s.ended
	}
	return s.Err()
}

// endedByStore reports whether the store has ended the session, so that the
// locks may have been lost some time ago.
func (s *Grants) endedByStore() bool {
	cause := s.Cause()
	return errors.Is(cause, driver.ErrSessionEnded) && !errors.Is(cause, driver.ErrExpired)
}

func (s *Grants) lossBegins() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lossesInUse++
}

func (s *Grants) lossEnds() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lossesInUse--; s.lossesInUse == 0 {
		select {
		case s.noLossInUse <- struct{}{}:
		default:
		}
	}
}

func (s *Grants) lossInUse() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lossesInUse > 0
}

// AwaitLossesSeen waits until all lost entries are unlocked, or stop closes.
func (s *Grants) AwaitLossesSeen(stop <-chan struct{}) {
	for s.lossInUse() {
		select {
		case <-s.noLossInUse:
		case <-stop:
			return
		}
	}
}
