package command

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

// shared is the in-memory store behind the driver "shared". Each test replaces
// it.
var shared driver.Connector

type sharedDriver struct{}

func (sharedDriver) OpenConnector(string) (driver.Connector, error) { return shared, nil }

func init() { dlock.Register("shared", sharedDriver{}) }

// onStore runs f in virtual time with a new store, which commands then use.
func onStore(t *testing.T, f func(t *testing.T, store *memdriver.Store)) {
	t.Helper()
	t.Setenv("DLOCK_DRIVER", "shared")
	t.Setenv("DLOCK_DSN", "")
	t.Setenv("DLOCK_CONFIG", "")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	systemConfig = t.TempDir() + "/none"
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		shared = store
		f(t, store)
	})
}

func client(t *testing.T, store driver.Connector, host string) *dlock.Client {
	c := dlock.NewClient(store, dlock.WithHostname(host))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func held(t *testing.T, c *dlock.Client, name string) *dlock.Lock {
	t.Helper()
	lock, err := c.RWMutex(name).Lock(t.Context())
	require.NoError(t, err)
	return lock
}

func runTool(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	status = Run(t.Context(), args, &out, &errs)
	return status, out.String(), errs.String()
}

func TestQueueShowsHolderAndWaiters(t *testing.T) {
	onStore(t, func(t *testing.T, store *memdriver.Store) {
		lock := held(t, client(t, store, "web1"), "stock/42")
		go func() {
			if l, err := client(t, store, "web2").RWMutex("stock/42").RLock(t.Context()); err == nil {
				_ = l.Unlock()
			}
		}()
		time.Sleep(75 * time.Second)
		status, out, errs := runTool(t, "queue", "stock/42")
		require.Zero(t, status, errs)
		assert.Equal(t, "dlock queue: the store is shared\n", errs)
		lines := strings.Split(out, "\n")
		require.Len(t, lines, 4)
		for _, line := range lines {
			assert.LessOrEqual(t, len(line), 100)
		}
		assert.Equal(t, columns, strings.Fields(lines[0]))
		first, second := strings.Fields(lines[1]), strings.Fields(lines[2])
		assert.Equal(t, []string{"holds", "exclusive", "web1"}, first[:3])
		assert.Equal(t, []string{"1", "1m15s"}, []string{first[5], first[7]})
		assert.Regexp(t, `^\d\d:\d\d:\d\d$`, first[6])
		assert.Equal(t, lock.Node(), first[9])
		assert.Equal(t, []string{"waits", "shared", "web2"}, second[:3])
		assert.Regexp(t, `^\d+(\.\d)?s$`, second[8])
		require.NoError(t, lock.Unlock())

		time.Sleep(time.Second)
		status, out, _ = runTool(t, "queue", "stock/42")
		assert.Zero(t, status)
		assert.Equal(t, "nobody holds stock/42 or waits for it\n", out)
	})
}

func TestQueueAsJSON(t *testing.T) {
	onStore(t, func(t *testing.T, store *memdriver.Store) {
		c := dlock.NewClient(store, dlock.WithHostname("web1"), dlock.WithData([]byte("<\x1b>")))
		defer c.Close()
		lock := held(t, c, "stock/42")
		defer lock.Unlock()
		time.Sleep(3 * time.Second)
		status, out, errs := runTool(t, "queue", "stock/42", "-json")
		require.Zero(t, status, errs)
		require.NotContains(t, out, "\x1b")
		var state map[string]any
		require.NoError(t, json.Unmarshal([]byte(out), &state))
		contenders := state["contenders"].([]any)
		require.Len(t, contenders, 1)
		first := contenders[0].(map[string]any)
		for field, want := range map[string]any{
			"state": "holds", "mode": "exclusive", "node": lock.Node(), "token": float64(lock.Token()), "host": "web1", "for_seconds": 3.0, "data": "<\x1b>",
		} {
			assert.Equal(t, want, first[field], field)
		}
		for _, field := range []string{"pid", "program", "since", "session", "session_left_seconds"} {
			assert.NotEmpty(t, first[field], field)
		}
		_, out, _ = runTool(t, "queue", "-json", "nobody")
		assert.Contains(t, out, `"lock":"nobody","store":"shared"`)
		assert.Contains(t, out, `"contenders":[]`)
	})
}

// safeBuffer holds output that a test reads while the command is running.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) next() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.b.Reset()
	return b.b.String()
}

func TestQueueShowsTheLeadersValue(t *testing.T) {
	onStore(t, func(t *testing.T, store *memdriver.Store) {
		term, err := client(t, store, "web1").Election("scheduler", dlock.WithData([]byte("10.0.0.7:80"))).Campaign(t.Context())
		require.NoError(t, err)
		_, out, _ := runTool(t, "queue", "scheduler")
		lines := strings.Split(out, "\n")
		assert.Equal(t, append(slices.Clone(columns), "DATA"), strings.Fields(lines[0]))
		assert.Equal(t, []string{term.Node(), "10.0.0.7:80"}, strings.Fields(lines[1])[9:])
		require.NoError(t, term.Unlock())
	})
}

func TestQueueShowsTheUnitsOfASemaphore(t *testing.T) {
	onStore(t, func(t *testing.T, store *memdriver.Store) {
		c := dlock.NewClient(store, dlock.WithHostname("web1"))
		defer c.Close()
		lock, err := c.Semaphore("slots", 5).Acquire(t.Context(), 2)
		require.NoError(t, err)
		defer lock.Unlock()
		_, out, _ := runTool(t, "queue", "slots")
		assert.Contains(t, out, "holds  2 of 5  web1")
		_, out, _ = runTool(t, "queue", "slots", "-json")
		assert.Contains(t, out, `"mode":"shared","units":2,"of_units":5,`)
	})
}

func TestQueueWatchShowsChangesOnly(t *testing.T) {
	onStore(t, func(t *testing.T, store *memdriver.Store) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var out, errs safeBuffer
		status := make(chan int, 1)
		go func() { status <- Run(ctx, []string{"queue", "-watch", "q", "-timeout", "2s"}, &out, &errs) }()
		time.Sleep(90 * time.Second)
		assert.Equal(t, "nobody holds q or waits for it\n", out.next())
		assert.Equal(t, "dlock queue: the store is shared\n", errs.next())

		c := client(t, store, "web1")
		lock := held(t, c, "q")
		time.Sleep(90 * time.Second)
		assert.Equal(t, 1, strings.Count(out.next(), "holds"))
		require.NoError(t, lock.Downgrade(t.Context()))
		time.Sleep(2 * time.Second)
		assert.Equal(t, 1, strings.Count(out.next(), "shared"))

		heal := store.Faults().Down()
		time.Sleep(7 * time.Second)
		assert.Equal(t, 1, strings.Count(errs.next(), "trying again"))
		heal()
		time.Sleep(5 * time.Second)
		assert.NotEmpty(t, out.next(), "after an outage, the queue is shown again")
		assert.Empty(t, errs.next())
		cancel()
		assert.Zero(t, <-status)
		_ = lock.Unlock()
	})
}

func TestLsListsLocks(t *testing.T) {
	onStore(t, func(t *testing.T, store *memdriver.Store) {
		c := client(t, store, "web1")
		for _, name := range []string{"stock", "stock/4 2", "stocks", "order"} {
			defer held(t, c, name).Unlock()
		}
		for _, test := range []struct{ args, want string }{
			{"ls", "order\nstock\n\"stock/4 2\"\nstocks\n"},
			{"ls stock", "stock\n\"stock/4 2\"\n"},
			{"ls stock -json", "{\"lock\":\"stock\"}\n{\"lock\":\"stock/4 2\"}\n"},
			{"ls none", ""},
		} {
			status, out, errs := runTool(t, strings.Fields(test.args)...)
			assert.Zero(t, status, errs)
			assert.Equal(t, test.want, out, test.args)
		}
	})
}

func TestReleaseWithoutATerminalNeedsYes(t *testing.T) {
	onStore(t, func(t *testing.T, store *memdriver.Store) {
		lock := held(t, client(t, store, "web1"), "q")
		status, out, errs := runTool(t, "release", "q", lock.Node())
		assert.Equal(t, usageStatus, status)
		assert.Empty(t, out)
		assert.Contains(t, errs, "-yes")
		require.NoError(t, lock.Unlock())
	})
}

func TestReleaseRefusesWhatHasChangedSinceTheQuestion(t *testing.T) {
	tests := map[string]struct {
		shown  int // index in the queue
		change func(t *testing.T, store *memdriver.Store, holder *dlock.Lock)
		want   string
	}{
		"the answer is no": {0, nil, "nobody said yes"},
		"the holder has released the lock": {0, func(t *testing.T, _ *memdriver.Store, holder *dlock.Lock) {
			require.NoError(t, holder.Unlock())
		}, "no contender of q has the node"},
		"the holder has downgraded": {0, func(t *testing.T, _ *memdriver.Store, holder *dlock.Lock) {
			require.NoError(t, holder.Downgrade(t.Context()))
		}, "no contender of q has the node"},
		"the waiter holds the lock": {1, func(t *testing.T, _ *memdriver.Store, holder *dlock.Lock) {
			require.NoError(t, holder.Unlock())
			time.Sleep(time.Second)
		}, "it has changed since: it holds, exclusive, token 2"},
		"the name stands for another node": {0, func(t *testing.T, store *memdriver.Store, holder *dlock.Lock) {
			store.Faults().RemoveQueue("q")
			require.NoError(t, store.Faults().PutNode("q", holder.Node(), nil))
		}, "it has changed since: it holds, exclusive, token 2"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			onStore(t, func(t *testing.T, store *memdriver.Store) {
				holder := held(t, client(t, store, "web1"), "q")
				if test.shown == 1 {
					waiter := client(t, store, "web2")
					go func() { _, _ = waiter.RWMutex("q").Lock(t.Context()) }()
					time.Sleep(time.Second)
				}

				var out, errs bytes.Buffer
				operator := client(t, store, "operator")
				tool := newTool("release", "", "", nil, &out, &errs)
				queue, err := operator.RWMutex("q").Queue(t.Context())
				require.NoError(t, err)
				var after []dlock.Contender
				err = tool.remove(t.Context(), operator.RWMutex("q"), queue[test.shown].Node, func(string) bool {
					if test.change != nil {
						test.change(t, store, holder)
					}
					after, _ = operator.RWMutex("q").Queue(t.Context())
					return test.change != nil
				})
				require.ErrorContains(t, err, "not removed")
				require.ErrorContains(t, err, test.want)
				now, err := operator.RWMutex("q").Queue(t.Context())
				require.NoError(t, err)
				require.Len(t, now, len(after))
				_ = holder.Unlock()
			})
		})
	}
}

func TestReleaseTakesANodeAsTheTableQuotesIt(t *testing.T) {
	onStore(t, func(t *testing.T, store *memdriver.Store) {
		const odd = "a b\u202ec-0000000000"
		require.NoError(t, store.Faults().PutNode("q", odd, nil))
		_, out, _ := runTool(t, "queue", "q")
		require.Contains(t, out, `"a b\u202ec-0000000000"`)
		status, out, errs := runTool(t, "release", "q", `"a b\u202ec-0000000000"`, "-yes")
		assert.Zero(t, status, errs)
		assert.NotContains(t, out, "\u202e")
	})
}

func TestHostileTextIsNotPrinted(t *testing.T) {
	const hostile = "\x1b[2J\u202e\u200b\nholds\u0085\xff"
	c := dlock.Contender{
		Node: hostile, Host: hostile, Token: -1, SessionLeft: -time.Second,
		Record: dlock.Record{Program: hostile, Data: hostile, PID: -1, Since: time.Date(99999, 1, 1, 0, 0, 0, 0, time.UTC)},
	}
	_, err := json.Marshal(statesOf([]dlock.Contender{c}, time.Now()))
	require.NoError(t, err)
	text := table([]dlock.Contender{c}, time.Now())
	assert.Equal(t, 2, strings.Count(text, "\n"))
	for _, bad := range []string{"\x1b", "\u202e", "\u200b", "\u0085", "\xff"} {
		assert.NotContains(t, text, bad)
	}
	var errs bytes.Buffer
	newTool("queue", "", "", nil, nil, &errs).say("zkdriver: read " + hostile)
	assert.NotContains(t, errs.String(), "\x1b")
	assert.NotContains(t, errs.String(), "\u202e")
}

func TestATimeMayHaveDays(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"30": 30 * time.Second, "1.5h": 90 * time.Minute, "1d": 24 * time.Hour, "1d12h": 36 * time.Hour, "10d30m": 240*time.Hour + 30*time.Minute,
		"": 0, "d": 0, "0d": 0, "-1d": 0, "1.5d": 0, "1d2": 0, "1d-25h": 0, "12h1d": 0, "99999d": 0, "1dd": 0,
	} {
		var got seconds
		assert.Equal(t, want > 0, got.Set(text) == nil, text)
		assert.Equal(t, want, time.Duration(got), text)
	}
}

func TestPeriodsAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0.0s", 8250 * time.Millisecond: "8.2s", 42 * time.Second: "42s", 75 * time.Second: "1m15s",
		5*time.Hour + 3*time.Minute: "5h03m", 52 * time.Hour: "2d04h",
	} {
		assert.Equal(t, want, period(d))
	}
}

func TestAStoreThatDoesNotAnswerEndsTheCommand(t *testing.T) {
	for _, args := range [][]string{{"queue", "q"}, {"queue", "-watch", "q"}, {"ls"}, {"release", "q", "web1-W-0000000000", "-yes"}} {
		onStore(t, func(t *testing.T, _ *memdriver.Store) {
			shared = silent{}
			began := time.Now()
			status, out, errs := runTool(t, append(args, "-timeout", "3s")...)
			assert.Equal(t, failedStatus, status)
			assert.Empty(t, out)
			assert.Contains(t, errs, "no answer within 3s")
			assert.Contains(t, errs, "(the store is shared)")
			assert.Less(t, time.Since(began), 4*time.Second)
		})
	}
}

type silent struct{}

func (silent) Connect(ctx context.Context) (driver.Session, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestInvalidCommandLines(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"queue", "give the name of one lock"},
		{"queue a b", "give the name of one lock"},
		{"queue a//b", "empty segment"},
		{"queue -timeout 0s a", "must be positive"},
		{"queue -driver mem a", "-driver mem excludes nobody"},
		{"queue a -yes", "flag provided but not defined: -yes"},
		{"ls a b", "give one prefix at most"},
		{"ls /a", "empty segment"},
		{"release a", "give the name of a lock, and a node that dlock queue shows"},
		{"release a b c", "give the name of a lock, and a node that dlock queue shows"},
	} {
		onStore(t, func(t *testing.T, _ *memdriver.Store) {
			status, out, errs := runTool(t, strings.Fields(test.args)...)
			assert.Equal(t, usageStatus, status, test.args)
			assert.Empty(t, out)
			assert.Contains(t, errs, test.want, test.args)
			assert.Contains(t, errs, "Try: dlock help ")
		})
	}
}

func TestADashDashEndsTheFlags(t *testing.T) {
	tool := newTool("release", "", "", []string{"-timeout", "1s", "q", "--", "-yes", "-W-0000000000"}, nil, nil)
	arguments, err := tool.parse()
	require.NoError(t, err)
	assert.Equal(t, []string{"q", "-yes", "-W-0000000000"}, arguments)
	assert.Equal(t, time.Second, tool.timeout)
}

func TestAnInterruptIsNoYes(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in, unanswered := io.Pipe()
	defer unanswered.Close()
	assert.False(t, confirm(ctx, in, io.Discard, "Remove? "))
}

func TestLastReadsOnlyValuesOfRuns(t *testing.T) {
	onStore(t, func(t *testing.T, store *memdriver.Store) {
		lock := held(t, client(t, store, "web1"), "job")
		for value, want := range map[string]string{
			"a checkpoint":         "dlock last: job: the value beside the lock is not the time of a run",
			"-":                    "not the time of a run",
			"- failed noon 3 h":    "not the time of a run",
			"1999-12-31T23:59:00Z": "job succeeded last at 1999-12-31T23:59:00Z, 1m00s ago, with exit status 0\n",
			"- failed 1999-12-31T23:59:00Z 3 web1-W-0000000007": "job failed with exit status 3 on web1 at 1999-12-31T23:59:00Z, 1m00s ago; it never succeeded\n",
		} {
			require.NoError(t, lock.SetValue(t.Context(), []byte(value)))
			status, out, errs := runTool(t, "last", "job")
			assert.Contains(t, errs+out, want)
			assert.Equal(t, strings.HasPrefix(want, "job "), status == 0, value)
		}
	})
}
