package endtoend_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/zktest"
)

const tick = 500 * time.Millisecond // tickTime of the servers of package zktest

// contendingProcess starts a process that contends for the lock "q", and waits
// until it has got as far as the word says. It returns its node.
func (w *fixture) contendingProcess(timeout time.Duration, word string) (p *os.Process, node string) {
	w.Helper()
	lines := make(chan string, 100)
	p = w.process(contenderVariable, "zk://"+w.server.Addr()+w.root+"?session_timeout="+timeout.String(), func(line string) { lines <- line })
	for end := time.After(bound); ; {
		select {
		case line := <-lines:
			if node, found := strings.CutPrefix(line, word+" "); found {
				return p, node
			}
		case <-end:
			require.FailNow(w, "the process does not say "+word)
		}
	}
}

func TestWhenTheHoldersProcessIsKilledTheNextHoldsWithinTheSessionTimeoutAndTwoTicks(t *testing.T) {
	const timeout, slack = 3 * time.Second, 10 * time.Second
	w := newFixture(t)
	holder, node := w.contendingProcess(timeout, "held")
	w.listed("q", node)
	k := w.lock(w.client("next", ""))
	k.waitsBehind(node)
	began := time.Now()
	require.NoError(t, holder.Kill())
	lock := k.granted()
	took := k.at.Sub(began)
	t.Logf("%v after the SIGKILL, session timeout %v, tick %v", took, timeout, tick)
	require.Less(t, took, timeout+2*tick+slack)
	require.Greater(t, took, timeout/2, "the store keeps the session for its timeout from the last heartbeat on")
	w.listed("q", lock.Node())
	w.unlock(lock)
}

func TestWhenTheProcessOfAWaiterInTheMiddleDiesNoWaiterIsGrantedEarly(t *testing.T) {
	t.Parallel()
	w := newFixture(t)
	holder := w.lock(w.client("web1", "")).granted()
	middle, node := w.contendingProcess(3*time.Second, "waiting")
	last := w.lock(w.client("web2", ""))
	last.waitsBehind(node)
	require.NoError(t, middle.Kill())
	last.waitsBehind(holder.Node())
	require.NoError(t, holder.Err())
	own, _ := last.last()
	w.listed("q", holder.Node(), own)
	w.unlock(holder)
	w.unlock(last.granted())
}

// candidate is a process that campaigns, behind a proxy of its own.
type candidate struct {
	*os.Process
	proxy *zktest.Proxy
}

// terms collects what the candidates print: for each token the first and last
// time at which its holder led.
type terms struct {
	mu     sync.Mutex
	spans  map[int64][2]int64
	leader *candidate
}

func (s *terms) count() (int, *candidate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.spans), s.leader
}

func (w *fixture) candidate(s *terms) {
	w.Helper()
	c := &candidate{proxy: zktest.NewProxy(w, w.server.Addr())}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.Process = w.process(candidateVariable, "zk://"+c.proxy.Addr()+w.root+"?session_timeout=2s", func(line string) {
		var token, at int64
		if _, err := fmt.Sscanf(line, "led %d %d", &token, &at); err != nil {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		span, known := s.spans[token]
		if !known {
			s.leader, span = c, [2]int64{at, at}
		}
		s.spans[token] = [2]int64{min(span[0], at), max(span[1], at)}
	})
}

// This test kills leaders, stops them for longer than their session timeout,
// and cuts them off from the server.
func TestOnlyOneProcessLeadsAtATime(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a session timeout for each leader")
	}
	w := newFixture(t)
	s := &terms{spans: make(map[int64][2]int64)}
	for range 4 {
		w.candidate(s)
	}
	faults := []func(c *candidate){
		func(c *candidate) {
			require.NoError(t, c.Kill())
			w.candidate(s)
		},
		func(c *candidate) {
			require.NoError(t, c.Signal(syscall.SIGSTOP))
			time.AfterFunc(4*time.Second, func() { c.Signal(syscall.SIGCONT) })
		},
		func(c *candidate) {
			c.proxy.Cut()
			time.AfterFunc(4*time.Second, c.proxy.Heal)
		},
	}
	const rounds = 12
	for i := range rounds {
		w.eventually(func() bool { n, _ := s.count(); return n > i }, func() string { return "nobody leads" })
		time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond) // at any time of the term
		_, leader := s.count()
		faults[i%len(faults)](leader)
	}
	w.eventually(func() bool { n, _ := s.count(); return n > rounds }, func() string { return "nobody leads" })

	s.mu.Lock()
	defer s.mu.Unlock()
	var tokens []int64
	for token := range s.spans {
		tokens = append(tokens, token)
	}
	slices.Sort(tokens)
	for i, token := range tokens[1:] {
		require.Less(t, s.spans[tokens[i]][1], s.spans[token][0], "the leader with token %d led when that with %d had begun", tokens[i], token)
	}
}
