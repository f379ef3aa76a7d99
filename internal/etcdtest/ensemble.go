package etcdtest

import (
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

// Ensemble is a cluster of etcd servers.
type Ensemble struct {
	// Servers lists the members, which may be killed, paused and restarted
	// individually.
	Servers []*Server
}

func (e *Ensemble) Addrs() (addrs []string) {
	for _, s := range e.Servers {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// Leader waits until exactly one running server claims to be the leader, and
// returns its index. Paused servers don't count.
func (e *Ensemble) Leader(t testing.TB) int {
	t.Helper()
	for end := time.Now().Add(testenv.ReadyWithin); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if leaders := e.leaders(); len(leaders) == 1 {
			return leaders[0]
		}
	}
	t.Fatal("the ensemble has no leader")
	return -1
}

func (e *Ensemble) leaders() (found []int) {
	for i, s := range e.Servers {
		if s.Down() {
			continue
		}
		if leads, err := s.metric("etcd_server_is_leader", ""); err == nil && leads == 1 {
			found = append(found, i)
		}
	}
	return found
}

// MoveLeader transfers the leadership to another server and waits until that is
// done. It retries if an election interferes, as may happen on a slow machine.
func (e *Ensemble) MoveLeader(t testing.TB) {
	t.Helper()
	for end := time.Now().Add(testenv.ReadyWithin); ; {
		from := e.Leader(t)
		to := e.Servers[(from+1)%len(e.Servers)]
		out, err := e.Servers[from].etcdctl("move-leader", to.id(t))
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("etcdctl move-leader: %v: %s", err, out)
		}
	}
}

func (s *Server) id(t testing.TB) string {
	t.Helper()
	status := strings.Split(s.Etcdctl("endpoint", "status"), ", ")
	if len(status) < 2 {
		t.Fatalf("etcdctl endpoint status: %q", status)
	}
	return status[1]
}
