package histories

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/zktest"
)

var serverFaults = flag.Int("server-faults", 3, "how many faults the servers of an ensemble have in one history")

// ensembleHistories is an ensemble used by several histories.
type ensembleHistories struct {
	*testing.T
	*zktest.Ensemble
	histories []*zkHistory
	rand      *rand.Rand
}

// cause calls play, which makes servers fail, and records that as a possible
// cause of losses in all histories.
func (s *ensembleHistories) cause(what string, play func()) {
	s.Log(what)
	for _, w := range s.histories {
		defer w.begin(cause{what: what, slot: -1, told: true})()
	}
	play()
}

// fault makes a server fail for a random time, which may be shorter or longer
// than a session timeout.
func (s *ensembleHistories) fault() {
	d := sessionTimeout/4 + time.Duration(s.rand.Int64N(int64(3*sessionTimeout/2)))
	i, role := s.Leader(s.T), "leader"
	if s.rand.IntN(2) == 0 {
		i, role = s.Follower(s.T), "follower"
	}
	server := s.Servers[i]
	after := func(mend func()) func() {
		return func() {
			time.Sleep(d)
			mend()
			s.WaitQuorum(s.T)
		}
	}
	switch s.rand.IntN(4) {
	case 0:
		s.cause(fmt.Sprintf("%s %d killed", role, i), func() {
			server.Kill()
			after(server.Restart)()
		})
	case 1:
		s.cause(fmt.Sprintf("%s %d stands still", role, i), func() {
			server.Pause()
			after(server.Resume)()
		})
	default:
		s.cause(fmt.Sprintf("%s %d cut off from the others", role, i), func() {
			s.CutServer(i)
			after(func() { s.HealServer(i) })()
		})
	}
}

func TestHistoriesOnAnEnsembleAreLinearizable(t *testing.T) {
	t.Parallel()
	const together = 4
	seed := rand.Uint64()
	ensemble := zktest.StartEnsemble(t, 3, zktest.WithConfig(map[string]string{"initLimit": "3", "syncLimit": "6"}))
	s := &ensembleHistories{T: t, Ensemble: ensemble, rand: rand.New(rand.NewPCG(seed, 3))}
	for i := range uint64(together) {
		w := newZKHistory(t, seed+i, 1500*time.Millisecond, fmt.Sprint("/h", i), ensemble.Servers...)
		w.lagging = true
		s.histories = append(s.histories, w)
	}
	var sum figures
	began := time.Now()
	play(t, "zookeeper ensemble", s.histories, func() {
		for range *serverFaults {
			s.fault()
			time.Sleep(sessionTimeout / 2)
		}
	}, &sum)
	t.Logf("%v, %v", &sum, time.Since(began).Round(time.Millisecond))
	require.NotZero(t, sum.counts["lost"])
}
