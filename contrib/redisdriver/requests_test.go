package redisdriver

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/testenv"
)

// longTimeout keeps periodic checks and request timeouts out of a test.
const longTimeout = "session_timeout=10m&read_timeout=1m"

// requests counts requests by operation, except those that maintain sessions
// and held locks.
func (s *store) requests() map[faults.Op]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := make(map[faults.Op]int)
	for _, p := range s.proxies {
		for op, n := range p.Counts() {
			sum[faults.Op(op)] += n
		}
	}
	maps.DeleteFunc(sum, func(op faults.Op, _ int) bool {
		switch op {
		case otherCommand, faults.OpConnect, faults.OpHeartbeat, faults.OpClose, ownWatch, faults.OpRead:
			return true
		}
		return false
	})
	return sum
}

func (s *store) newClient() *dlock.Client {
	c := dlock.NewClient(s)
	s.t.Cleanup(func() { c.Close() })
	return c
}

func (s *store) lock() *dlock.Lock {
	s.t.Helper()
	lock, err := s.newClient().RWMutex("stock/42").Lock(s.t.Context())
	require.NoError(s.t, err)
	return lock
}

func (s *store) waitForContenders(n int) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		return s.server.Do("ZCARD", s.key("q:stock/42")) == int64(n)
	}, 30*time.Second, time.Millisecond, "the queue never had %d contenders", n)
}

// takes requires exactly the wanted requests. It repeats slow runs, which may
// contain retries.
func takes(t *testing.T, want map[faults.Op]int, run func(t *testing.T, s *store) (made map[faults.Op]int)) {
	t.Helper()
	const unlockTimeout = 2 * time.Second // the shortest timeout in package recipes
	for range 20 {
		began := time.Now()
		made := run(t, newStore(t, redistest.Shared(t), longTimeout))
		if maps.Equal(made, want) || time.Since(began) < unlockTimeout {
			require.Equal(t, want, made)
			return
		}
		t.Logf("once more: %v after %v", made, time.Since(began))
	}
	t.Error("the machine is too busy, or there are too many requests")
}

func (s *store) waitForWatchers(holder *dlock.Lock, n int) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		lines, _ := s.server.Do("HGET", s.key("w:stock/42"), holder.Node()).(string)
		return strings.Count(lines, "\n")-strings.Count(lines, "/"+holder.Node()+"\n") == n
	}, 30*time.Second, time.Millisecond, "the holder never had %d waiters", n)
}

// The next holder sends only its Create and Delete, even in the same session.
func TestAHandOverTakesTheReleaseOnly(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, same := range []bool{false, true} {
		takes(t, map[faults.Op]int{faults.OpCreate: 2, faults.OpDelete: 2}, func(t *testing.T, s *store) map[faults.Op]int {
			client := s.newClient()
			holder, err := client.RWMutex("stock/42").Lock(ctx)
			require.NoError(t, err)
			if !same {
				client = s.newClient()
			}
			granted := testenv.LockLater(t, client.RWMutex("stock/42"))
			s.waitForWatchers(holder, 1)
			require.NoError(t, holder.Unlock())
			require.NoError(t, (<-granted).Unlock())
			return s.requests()
		})
	}
}

func TestEachCallIsOneScript(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	made := s.session()
	_, err := made.List(t.Context(), "stock/42") // opens a connection
	require.NoError(t, err)
	p := s.proxy(made)
	waits := spec()
	waits.Predecessor = func(ahead []driver.Node) int { return len(ahead) - 1 }
	var first, second driver.Joined
	for _, c := range []struct {
		name   string
		script *redis.Script
		call   func() error
	}{
		{"Create", createScript, func() (err error) {
			first, err = made.Create(t.Context(), "stock/42", spec())
			return err
		}},
		{"Create with a watch", createScript, func() (err error) {
			second, err = made.Create(t.Context(), "stock/42", waits)
			return err
		}},
		{"List", lookScript, func() error {
			_, err := made.List(t.Context(), "stock/42")
			return err
		}},
		{"Read", readScript, func() error {
			_, err := driver.Inspect(made).Read(t.Context(), "stock/42", first.Name)
			return err
		}},
		{"Watch", watchScript, func() error {
			_, err := made.Watch(t.Context(), "stock/42", second.Place, first.Node)
			return err
		}},
		{"WatchQueue", watchQueueScript, func() error {
			_, err := made.WatchQueue(t.Context(), "stock/43")
			return err
		}},
		{"SetValue", setValueScript, func() error {
			return driver.Inspect(made).SetValue(t.Context(), "stock/42", first.Place, []byte("value"))
		}},
		{"Value", valueScript, func() error {
			_, _, err := driver.Inspect(made).Value(t.Context(), "stock/42")
			return err
		}},
		{"Replace", replaceScript, func() error {
			_, err := made.Replace(t.Context(), "stock/42", first.Place, "web-R-")
			return err
		}},
		{"Delete", deleteScript, func() error {
			return made.Delete(t.Context(), "stock/42", second.Place, driver.Changed)
		}},
		{"Remove", removeScript, func() error {
			first.Name = driver.FormatName("web-R-", first.Seq)
			return driver.Inspect(made).Remove(t.Context(), "stock/42", first.Place)
		}},
		{"a heartbeat", beatScript, func() error { return beat(t.Context(), made) }},
	} {
		p.Keep()
		require.NoError(t, c.call(), c.name)
		commands := p.Commands()
		require.Len(t, commands, 1, "%s: %q", c.name, commands)
		require.Equal(t, []string{"evalsha", c.script.Hash()}, commands[0][:2], c.name)
	}
	channels := s.server.Do("PUBSUB", "CHANNELS", s.key("*"))
	require.Equal(t, []any{s.key("c:" + inside(made).id)}, channels)
}

// A queue may hold thousands of nodes, and only Read needs their data.
func TestAnAnswerAboutAWholeQueueHasNoData(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	other := s.session()
	data := strings.Repeat("long", 1000)
	var joined driver.Joined
	for range 3 {
		var err error
		joined, err = other.Create(t.Context(), "stock/42", driver.NodeSpec{Prefix: "web-W-", Data: []byte(data)})
		require.NoError(t, err)
	}
	made := s.session()
	size := func(script *redis.Script, args ...any) int {
		reply, err := inside(made).eval(t.Context(), script, args...)
		require.NoError(t, err)
		text := fmt.Sprint(reply)
		require.Contains(t, text, joined.Name)
		return strings.Count(text, data)
	}
	require.Equal(t, 0, size(lookScript, "stock/42", -1))
	require.Equal(t, 0, size(watchQueueScript, "stock/42"))
	require.Equal(t, 1, size(createScript, "stock/42", "1-operation", "web-W-", "", "0"), "the predecessor alone, for its proof")
}

// Whole lists for each of 1000 waiting sessions would keep the server busy.
func TestALookAsksForTheWatchedNodesOnly(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	made := s.session()
	waits := spec()
	waits.Predecessor = func(ahead []driver.Node) int { return len(ahead) - 1 }
	for range 10 {
		create(t, made, "stock/42")
	}
	joined, err := made.Create(t.Context(), "stock/42", waits)
	require.NoError(t, err)
	s.proxy(made).Keep()
	s.proxy(made).DropConnections() // the session now looks for missed changes
	var look []string
	require.Eventually(t, func() bool {
		for _, c := range s.proxy(made).Commands() {
			if len(c) > 1 && c[1] == lookScript.Hash() {
				look = c
			}
		}
		return look != nil
	}, 30*time.Second, time.Millisecond)
	require.Equal(t, []string{"stock/42", "2"}, look[5:7])
	require.ElementsMatch(t, []string{joined.Name, joined.Ahead[9].Name}, look[7:])
	require.Empty(t, joined.Watch.C)
}
