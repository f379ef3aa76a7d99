package histories

import (
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/zktest"
)

type hop struct {
	*zktest.Proxy
	server *zktest.Server
}

// route is how a client reaches the servers of an ensemble: through a proxy of
// its own for each.
type route []hop

// now returns the hop to the server that the client is connected to, or the
// first hop if there is none.
func (w route) now() hop {
	for _, h := range w {
		if h.Connections() > 0 {
			return h
		}
	}
	return w[0]
}

func (w route) heal() {
	for _, h := range w {
		h.Heal()
	}
}

func (w route) drop() {
	for _, h := range w {
		h.DropConnections()
	}
}

func (w route) delay(d time.Duration) {
	for _, h := range w {
		h.SetDelay(d)
	}
}

// expire makes the servers end the client's session. Meanwhile it refuses
// connections, because a client that reconnects in time keeps its session. It
// returns false if the outcome is unknown.
func (w route) expire(t testing.TB) bool {
	sessions := w.now().Sessions()
	if len(sessions) == 0 || sessions[len(sessions)-1].ID == 0 {
		return true
	}
	last := sessions[len(sessions)-1]
	for _, h := range w {
		h.Refuse()
	}
	defer w.heal()
	for i := range 20 * len(w) {
		err := zktest.Expire(w[i%len(w)].server.Addr(), last.ID, last.Passwd)
		if err == nil || strings.Contains(err.Error(), "does not know it") { // expired already
			return true
		}
		t.Logf("expire: %v", err)
		time.Sleep(50 * time.Millisecond)
	}
	return false
}
