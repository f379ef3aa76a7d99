package handmade

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/majority"
	"github.com/dlock-go/dlock/recipes"
)

// inMajority is dlock's lock in a majority of independent servers.
type inMajority struct {
	mutex *majority.Mutex
	mu    sync.Mutex // the hooks of several stores run at the same time
	held  *majority.Lock
}

func newMajority(s setting, p *points) (locker, error) {
	l := &inMajority{}
	waiting := &recipes.Trace{Waiting: func(context.Context, recipes.WaitingInfo) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.held == nil { // a held lock may wait, too: in the queue of a store that has lost it
			p.wait()
		}
	}}
	var clients []*dlock.Client
	for _, server := range s.Servers {
		client, err := openDlock(server, dlock.WithTrace(waiting))
		if err != nil {
			return nil, err
		}
		_ = client.Ping(context.Background()) // a minority may be away
		clients = append(clients, client)
	}
	l.mutex = &majority.Mutex{Name: name, Clients: clients}
	return l, nil
}

func (l *inMajority) lock(ctx context.Context) (int64, error) {
	held, err := l.mutex.Lock(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = held
	return 0, err
}

func (l *inMajority) check() error                 { return l.held.Err() }
func (l *inMajority) unlock(context.Context) error { return l.held.Unlock() }

// tokens returns the list of tokens in JSON, or null if the lock has no such
// list.
func tokens(l locker) string {
	m, ok := l.(*inMajority)
	if !ok {
		return "null"
	}
	list, err := json.Marshal(m.held.Tokens())
	if err != nil {
		panic(err) // unreachable
	}
	return string(list)
}

func useMajority(timeout time.Duration, addrs ...string) setting {
	s := setting{Lock: "dlock, majority"}
	for _, addr := range addrs {
		s.Servers = append(s.Servers, "redis redis://"+addr+"?empty_is_new=true&session_timeout="+timeout.String())
	}
	return s
}

// forgetful returns servers that lose all data in a restart.
func forgetful(t *testing.T, n int, options ...redistest.Option) (servers []*redistest.Server, addrs []string) {
	for range n {
		s := redistest.Start(t, options...)
		servers, addrs = append(servers, s), append(addrs, s.Addr())
	}
	return servers, addrs
}

func forget(s *redistest.Server) {
	s.Kill()
	s.Restart()
}

// requireTold requires that the process learns that it no longer holds the lock.
func requireTold(t *testing.T, p *process) {
	t.Helper()
	require.Eventually(t, func() bool { return p.check() != nil }, bound, 10*time.Millisecond)
}

// TestAMajorityWhenAServerForgets plays the events of
// TestRedlockWithTwoMajorities. B waits in the queue of the first server, so it
// does not get the lock before A has learned of its loss.
func TestAMajorityWhenAServerForgets(t *testing.T) {
	t.Parallel()
	for event, play := range map[string]struct {
		option redistest.Option
		forget func(third *redistest.Server)
	}{
		"a restart without the data": {redistest.With(), forget},
		"a clock that jumps":         {redistest.WithClock(), func(third *redistest.Server) { third.SetClock(time.Hour) }},
	} {
		t.Run(event, func(t *testing.T) {
			t.Parallel()
			if event == "a clock that jumps" {
				redistest.RequireClock(t)
			}
			servers, addrs := forgetful(t, 5, play.option)
			cut := append([]string(nil), addrs...)
			for i := 3; i < 5; i++ {
				network := testenv.NewProxy(t, addrs[i], nil)
				network.Cut()
				cut[i] = network.Addr()
			}
			a, b := start(t, "A", useMajority(sessionTimeout, cut...)), start(t, "B", useMajority(sessionTimeout, addrs...))
			var r resource
			a.lock()
			require.NoError(t, a.write(&r))
			b.contend()
			play.forget(servers[2])
			requireTold(t, a)
			_ = a.unlock()
			b.granted()
			require.NoError(t, b.write(&r))
			require.ErrorIs(t, a.write(&r), errStale)
			require.NoError(t, b.check())
		})
	}
}

// TestAMajorityOutlivesOneServer lets A hold the lock on three servers, one of
// which then forgets its data. A keeps the lock, whichever server it is.
func TestAMajorityOutlivesOneServer(t *testing.T) {
	t.Parallel()
	for i := range 3 {
		servers, addrs := forgetful(t, 3)
		s := useMajority(sessionTimeout, addrs...)
		a, b := start(t, "A", s), start(t, "B", s)
		var r resource
		a.lock()
		b.contend()
		forget(servers[i])
		for end := time.Now().Add(2 * sessionTimeout); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			require.NoError(t, a.check())
			require.NoError(t, a.write(&r))
		}
		require.NoError(t, a.unlock())
		b.granted()
		require.NoError(t, b.write(&r))
		require.ErrorIs(t, a.write(&r), errStale)
	}
}

// TestAMajorityThatForgets shows the limit. Two of three servers lose their
// data, which goes unnoticed because of empty_is_new. A is cut off from them,
// so B gets the lock before A learns of its loss. The tokens of Redis follow
// its clock, so the resource still refuses A's late write.
func TestAMajorityThatForgets(t *testing.T) {
	t.Parallel()
	servers, addrs := forgetful(t, 3)
	networks, behind := make([]*testenv.Proxy, 3), make([]string, 3)
	for i, addr := range addrs {
		networks[i] = testenv.NewProxy(t, addr, nil)
		behind[i] = networks[i].Addr()
	}
	a := start(t, "A", useMajority(10*time.Minute, behind...)) // its leases outlast the test
	var r resource
	a.lock()
	require.NoError(t, a.write(&r))
	for i := range 2 {
		networks[i].Cut()
		forget(servers[i])
	}
	b := start(t, "B", useMajority(10*time.Minute, addrs...))
	b.lock()
	require.NoError(t, a.check(), "two holders")
	require.NoError(t, b.write(&r))
	require.ErrorIs(t, a.write(&r), errStale)
}

// TestAPausedHolderOfAMajority pauses the holder as
// TestAPausedHolderOfRedlock does.
func TestAPausedHolderOfAMajority(t *testing.T) {
	t.Parallel()
	_, addrs := forgetful(t, 3)
	short, long := useMajority(sessionTimeout, addrs...), useMajority(time.Minute, addrs...)
	require.Equal(t, pause{told: true, lateWrite: false, thirdOne: false}, pausedHolder(t, short, long))
}
