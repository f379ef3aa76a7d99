package endtoend_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/zktest"
)

// An observer must send no request when a candidate joins. It sends four
// requests when the leader changes.
func TestAnObserverIsWokenByChangesOfTheLeaderOnly(t *testing.T) {
	w := newFixture(t)
	first, err := w.client("web1").Election("q").Campaign(t.Context())
	require.NoError(t, err)
	c, proxy := w.proxied("observer")
	ctx, cancel := context.WithCancel(t.Context())
	leaders := make(chan dlock.Contender)
	var observer sync.WaitGroup
	observer.Go(func() {
		defer close(leaders)
		for leader, err := range c.Election("q").Observe(ctx) {
			if err != nil {
				return
			}
			leaders <- leader
		}
	})
	require.Equal(t, first.Token(), (<-leaders).Token)
	before := proxy.Requests()
	var candidates sync.WaitGroup
	terms := make(chan *dlock.Lock)
	for i := range 5 {
		e := w.client(fmt.Sprint("candidate", i)).Election("q", dlock.WithData(fmt.Append(nil, i)))
		candidates.Go(func() {
			term, err := e.Campaign(context.Background())
			if err != nil {
				t.Error(err)
			}
			terms <- term
		})
		w.eventually(func() bool { return len(w.nodes("q")) == i+2 }, func() string { return "no candidate" })
	}
	require.Zero(t, proxy.Requests()-before, "joins wake no observer")
	for i, term := 0, first; i < 5; i++ {
		before = proxy.Requests()
		require.NoError(t, term.Unlock())
		term = <-terms
		leader := <-leaders
		require.Equal(t, term.Token(), leader.Token)
		require.Equal(t, fmt.Sprint(i), leader.Record.Data)
		require.Equal(t, 4, proxy.Requests()-before)
		if i == 4 {
			require.NoError(t, term.Unlock())
		}
	}
	require.Empty(t, (<-leaders).Node)
	candidates.Wait()
	cancel()
	observer.Wait()
}

// candidateVariable turns the test binary into a process that campaigns. Its
// value is the data source name.
const candidateVariable = "ENDTOEND_CANDIDATE_DSN"

// candidateMain campaigns for leadership. It prints each time at which it was
// the leader, with the token of its term. It takes the time before it calls
// Err, so the time is right even if the process is stopped in between.
func candidateMain(dsn string) int {
	client, err := dlock.Open("zk", dsn)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	go func() {
		err := client.Election("q").Run(context.Background(), func(ctx context.Context, term *dlock.Lock) error {
			for ctx.Err() == nil {
				now := time.Now().UnixNano()
				if term.Err() == nil {
					fmt.Println("led", term.Token(), now)
				}
				time.Sleep(time.Millisecond)
			}
			return nil
		})
		fmt.Println("over", err)
	}()
	io.Copy(io.Discard, os.Stdin)
	return 0
}

type aspirant struct {
	cmd   *exec.Cmd
	proxy *zktest.Proxy
	in    io.Closer
}

// terms collects what the candidates print: for each token the first and last
// time at which its holder led.
type terms struct {
	mu     sync.Mutex
	spans  map[int64][2]int64
	leader *aspirant
}

func (s *terms) note(c *aspirant, token, at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	span, known := s.spans[token]
	if !known {
		s.leader, span = c, [2]int64{at, at}
	}
	s.spans[token] = [2]int64{min(span[0], at), max(span[1], at)}
}

func (s *terms) count() (int, *aspirant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.spans), s.leader
}

func (w *fixture) aspirant(s *terms) *aspirant {
	w.Helper()
	c := &aspirant{proxy: zktest.NewProxy(w, w.server.Addr()), cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), candidateVariable+"="+w.dsn(c.proxy.Addr(), "session_timeout=2s"))
	var err error
	c.in, err = c.cmd.StdinPipe()
	require.NoError(w, err)
	out, err := c.cmd.StdoutPipe()
	require.NoError(w, err)
	require.NoError(w, c.cmd.Start())
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var token, at int64
			if _, err := fmt.Sscanf(lines.Text(), "led %d %d", &token, &at); err == nil {
				s.note(c, token, at)
			}
		}
	}()
	w.Cleanup(func() {
		c.in.Close()
		c.cmd.Process.Kill()
		c.cmd.Wait()
	})
	return c
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
		w.aspirant(s)
	}
	faults := []func(c *aspirant){
		func(c *aspirant) {
			require.NoError(t, c.cmd.Process.Kill())
			w.aspirant(s)
		},
		func(c *aspirant) {
			require.NoError(t, c.cmd.Process.Signal(syscall.SIGSTOP))
			time.AfterFunc(4*time.Second, func() { c.cmd.Process.Signal(syscall.SIGCONT) })
		},
		func(c *aspirant) {
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
