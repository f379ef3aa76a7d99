package recipes

import (
	"context"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// heartbeats passes the heartbeats of a session to the Heartbeat hook. It has
// its own goroutine, so that a slow hook does not delay the driver.
type heartbeats struct {
	session string
	mu      sync.Mutex         // held while sending to next
	next    chan HeartbeatInfo // capacity 1; the unreported heartbeat with the smallest Left
}

// watchHeartbeats calls the Heartbeat hook, if there is one, until the session
// ends.
func (s *session) watchHeartbeats() {
	hook := s.client.options.trace.Heartbeat
	if hook == nil {
		return
	}
	h := &heartbeats{session: driver.Inspect(s.ofDriver()).Describe().ID, next: make(chan HeartbeatInfo, 1)}
	if !driver.Inspect(s.ofDriver()).OnHeartbeat(h.note) {
		return
	}
	s.client.spawn(func() {
		for {
			select {
			case i := <-h.next:
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
	case unreported := <-h.next:
		left = min(left, unreported.Left)
	default:
	}
	h.next <- HeartbeatInfo{Session: h.session, Left: left, Term: term}
}
