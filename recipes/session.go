package recipes

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes/internal/entry"
)

// session is one session of the client. It may live on in the store after the
// client has lost it.
type session struct {
	*entry.Grants
	client *Client

	ended  chan struct{} // closed when attend has returned
	endErr error         // the result of endInStore
}

// ofDriver returns the driver's session, for [driver.Inspect].
func (s *session) ofDriver() driver.Session { return s.Grants.Session }

// onSession calls f with the client's session, and once more with a new one if
// that session has ended.
func (c *Client) onSession(ctx context.Context, f func(s *session) error) (err error) {
	for range 2 {
		var s *session
		if s, err = c.awaitSession(ctx); err != nil {
			return err
		}
		if err = f(s); !errors.Is(err, driver.ErrSessionEnded) {
			return err
		}
	}
	return err
}

func (c *Client) awaitSession(ctx context.Context) (*session, error) {
	if s := c.current(); s != nil {
		return s, nil
	}
	a := c.joinAttempt(ctx)
	if a == nil {
		return nil, ErrClosed
	}
	select {
	case <-a.ended:
		return a.session, a.err
	case <-ctx.Done():
		c.giveUp(a)
		return nil, ctx.Err()
	case <-c.draining:
		return nil, ErrClosed
	}
}

func (c *Client) current() *session {
	s := c.live.Load()
	if s == nil {
		return nil
	}
	select {
	case <-s.Done():
		return nil
	default:
		return s
	}
}

// adopt makes ds the client's session, or closes ds if the client is closed.
func (c *Client) adopt(ds driver.Session) (*session, error) {
	s := &session{Grants: entry.NewGrants(ds, &c.entryClient), client: c, ended: make(chan struct{})}
	if !c.register(s) {
		if err := ds.Close(); err != nil {
			c.options.logger.Warn("dlock: session left to time out", "error", err)
		}
		c.endedBy(ErrClosed)
		return nil, ErrClosed
	}
	s.watchHeartbeats()
	return s, nil
}

func (c *Client) register(s *session) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closing {
		return false
	}
	c.live.Store(s)
	c.sessions[s] = struct{}{}
	close(c.begun)
	c.begun = make(chan struct{})
	go s.attend()
	return true
}

// nextBegun returns a channel that closes when the next session or Close begins.
func (c *Client) nextBegun() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begun
}

func (c *Client) forget(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sessions, s)
}

// attend runs as long as the session. It then reports the loss of all locks,
// and ends the session in the store.
func (s *session) attend() {
	defer close(s.ended)
	select {
	case <-s.Done():
	case <-s.client.done:
	}
	if s.client.closedOr(nil) != nil {
		s.End(ErrClosed)
		s.endErr = s.endInStore()
		s.client.endedBy(ErrClosed)
	} else {
		s.endLost(s.Err())
		s.endErr = s.endInStore()
	}
	if s.endErr == nil {
		s.client.forget(s)
	}
}

// endLost reports the loss to all holders, and waits until they have unlocked.
func (s *session) endLost(cause error) {
	s.End(cause)
	s.client.options.logger.Warn("dlock: session ended", "error", cause)
	s.client.endedBy(cause)
	s.AwaitLossesSeen(s.client.done)
}

// endInStore ends a lost session in the store, because its nodes block
// contenders until then. A new session makes it retry at once.
func (s *session) endInStore() error {
	pause := entry.Retries{New: s.client.options.backOff}
	for {
		begun := s.client.nextBegun()
		closing := s.client.closedOr(nil) != nil
		err := s.Grants.Close()
		if err == nil || closing {
			return err
		}
		s.client.options.logger.Debug("dlock: session has not ended in the store yet", "error", err)
		entry.Sleep(pause.NextEndless(), begun)
	}
}

// heldNode returns the node with which this client holds the lock, or "".
func (c *Client) heldNode(lock string) string {
	s := c.live.Load()
	if s == nil {
		return ""
	}
	if entries := s.Granted(lock); len(entries) > 0 {
		return entries[0].Place().Name
	}
	return ""
}

func (s *session) heldSince(lock string) map[driver.Node]time.Time {
	since := make(map[driver.Node]time.Time)
	for _, e := range s.Granted(lock) {
		since[e.Place().Node] = e.Since()
	}
	return since
}

// heartbeats passes a session's heartbeats to the Heartbeat hook on its own
// goroutine, so that a slow hook does not delay the driver.
type heartbeats struct {
	sessionID  string
	mu         sync.Mutex         // held while sending to unreported
	unreported chan HeartbeatInfo // capacity 1; has the smallest Left not reported
}

func (s *session) watchHeartbeats() {
	hook := s.client.options.trace.Heartbeat
	if hook == nil {
		return
	}
	h := &heartbeats{sessionID: driver.Inspect(s.ofDriver()).Describe().ID, unreported: make(chan HeartbeatInfo, 1)}
	if !driver.Inspect(s.ofDriver()).OnHeartbeat(h.note) {
		return
	}
	s.client.spawn(func() {
		for {
			select {
			case i := <-h.unreported:
				hook(context.Background(), i)
			case <-s.Done():
				return
			case <-s.client.done:
				return
			}
		}
	})
}

func (h *heartbeats) note(left, term time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case unreported := <-h.unreported:
		left = min(left, unreported.Left)
	default:
	}
	h.unreported <- HeartbeatInfo{SessionID: h.sessionID, Left: left, Term: term}
}
