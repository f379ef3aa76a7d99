package demo

import (
	"bytes"
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

// apart is a driver whose store is not shared between processes.
type apart struct{ *memdriver.Store }

func (a apart) OpenConnector(string) (driver.Connector, error) { return a, nil }

type refusing struct{ *memdriver.Store }

type refusingSession struct{ driver.Session }

func (r refusing) OpenConnector(string) (driver.Connector, error) { return r, nil }

func (r refusing) Connect(ctx context.Context) (driver.Session, error) {
	s, err := r.Store.Connect(ctx)
	return refusingSession{s}, err
}

func (refusingSession) Create(context.Context, string, driver.NodeSpec) (driver.Joined, error) {
	return driver.Joined{}, errors.New("no permission")
}

func init() {
	dlock.Register("apart", apart{memdriver.New()})
	dlock.Register("refusing", refusing{memdriver.New()})
}

func start(t *testing.T, ctx context.Context, args ...string) (status int, out string, err error) {
	t.Helper()
	s, err := parse(args)
	require.NoError(t, err)
	var stdout bytes.Buffer
	status, err = s.run(ctx, &stdout)
	return status, stdout.String(), err
}

func TestARunInMemoryIsOK(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status, out, err := start(t, t.Context())
		require.NoError(t, err)
		assert.Equal(t, statusOK, status)
		assert.Equal(t, 10, strings.Count(out, "  holds  "), out)
		assert.Equal(t, 10, strings.Count(out, "  releases\n"), out)
		assert.Contains(t, out, `
  ok        alone     no other worker held the lock together with a writer
  ok        order     first come, first served, if two could not share the lock
  ok        tokens    each above those of all earlier writers
  ok        counter   it is 19, and no number was lost

VERDICT: OK
`)
	})
}

func TestALockThatDoesNotExcludeIsReported(t *testing.T) {
	status, out, err := start(t, t.Context(), "-driver", "apart", "-dsn", "x")
	require.NoError(t, err)
	assert.Equal(t, statusBad, status)
	for _, rule := range []string{"alone", "tokens", "counter"} {
		assert.Contains(t, out, "  VIOLATED  "+rule)
	}
	assert.Contains(t, out, "VERDICT: VIOLATED")
}

func inThisOrder(out string, texts ...string) bool {
	for _, text := range texts {
		_, after, found := strings.Cut(out, text)
		if !found {
			return false
		}
		out = after
	}
	return true
}

func TestTheTokenKeepsALateWriteOut(t *testing.T) {
	for fault, steps := range map[string][]string{
		faultPause: {"worker-1 W  PAUSED", "worker-2 W  holds     exclusive, token 2", "worker-2 W  writes    0 + 2 = 2", "worker-1 W  wakes up", "worker-1 W  REFUSED", "worker-1 W  LOST"},
		faultCut:   {"worker-1 W  CUT OFF", "worker-1 W  LOST", "worker-2 W  holds     exclusive, token 2", "worker-2 W  writes    0 + 2 = 2", "worker-1 W  REFUSED"},
	} {
		synctest.Test(t, func(t *testing.T) {
			status, out, err := start(t, t.Context(), "-fault", fault)
			require.NoError(t, err)
			assert.Equal(t, statusOK, status)
			steps := append([]string{"worker-1 W  holds     exclusive, token 1", "worker-2 W  waits"}, steps...)
			steps = append(steps, "counter   it is 2, and no number was lost", "ok        late ", "After 1.9", "VERDICT: OK\n")
			assert.True(t, inThisOrder(out, steps...), out)
			assert.Contains(t, out, "REFUSED   0 + 1 = 1 with token 1: the counter has seen token 2\n")
			for line := range strings.Lines(out) {
				if !strings.Contains(line, "LOST") {
					assert.LessOrEqual(t, len(line), 90, line)
				}
			}
		})
	}
}

func newRunInMemory(t *testing.T, ctx context.Context, args ...string) (*run, *bytes.Buffer) {
	s, err := parse(args)
	require.NoError(t, err)
	out := new(bytes.Buffer)
	r := newRun(ctx, s, out)
	t.Cleanup(r.stop)
	return r, out
}

func TestAnInterruptReleasesEverythingAndJudges(t *testing.T) {
	for _, fault := range []string{"", faultPause, faultCut} {
		for _, after := range []time.Duration{100 * time.Millisecond, 700 * time.Millisecond, 2200 * time.Millisecond, 2900 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				ctx, interrupt := context.WithTimeout(t.Context(), after)
				defer interrupt()
				r, out := newRunInMemory(t, ctx, "-fault", fault, "-hold", "1s")
				require.NoError(t, r.play())
				assert.Equal(t, statusOK, judge(r, true).write(out), out)
				assert.Contains(t, out.String(), "VERDICT: OK as far as it went, interrupted\n")
				assert.Zero(t, r.store.Stats().Nodes)
				assert.Zero(t, r.store.Stats().Sessions)
			})
		}
	}
}

func TestAnInterruptBeforeTheBeginningGivesNoVerdict(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	status, out, err := start(t, ctx)
	assert.Equal(t, statusBad, status)
	assert.ErrorContains(t, err, "interrupted before it began")
	assert.NotContains(t, out, "VERDICT")
}

func TestAStoreThatIsDownIsTriedForSomeTime(t *testing.T) {
	for _, c := range []struct {
		up, begins time.Duration
	}{{up: 3 * time.Second, begins: 3 * time.Second}, {up: time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			r, _ := newRunInMemory(t, t.Context())
			time.AfterFunc(c.up, r.store.Faults().Down())
			began := time.Now()
			err := r.play()
			if c.begins > 0 {
				assert.NoError(t, err)
				return
			}
			assert.ErrorContains(t, err, "store unavailable")
			assert.Less(t, time.Since(began), connectLimit+time.Second)
		})
	}
}

func TestALostLockBreaksNoRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, out := newRunInMemory(t, t.Context())
		time.AfterFunc(150*time.Millisecond, r.store.Faults().ExpireAll)
		require.NoError(t, r.play())
		assert.Equal(t, statusOK, judge(r, false).write(out), out)
		assert.Contains(t, out.String(), "worker-04 W  LOST      dlock: demo: ")
		assert.Contains(t, out.String(), "worker-05 W  retries ")
		assert.Equal(t, 3+6, strings.Count(out.String(), "  releases\n"), out)
	})
}

func TestAFaultThatHitsNobodyIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, out := newRunInMemory(t, t.Context(), "-fault", faultPause)
		time.AfterFunc(300*time.Millisecond, r.store.Faults().ExpireAll) // worker-1 loses the lock too early
		require.NoError(t, r.play())
		assert.Equal(t, statusBad, judge(r, false).write(out), out)
		assert.Contains(t, out.String(), "Error: the fault was not shown to its end")
	})
}

func TestAnErrorOfTheStoreStopsTheRun(t *testing.T) {
	status, out, err := start(t, t.Context(), "-driver", "refusing", "-dsn", "x")
	require.NoError(t, err)
	assert.Equal(t, statusBad, status)
	assert.Regexp(t, `worker-\d\d [RW]  ERROR     dlock: demo: .*no permission\n`, out)
	assert.Regexp(t, `Error: worker-\d\d: dlock: demo: .*no permission\nVERDICT: no rule was broken, but there was an error\n`, out)
}

func TestAHolderSeesTheCounterChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		w := newWorker(&settings{Workers: 1, Hold: time.Second}, 1, func(m message) reply {
			if m.Do == askRead {
				reads++
			}
			return reply{Value: reads} // as if another worker had written meanwhile
		})
		c := dlock.NewClient(memdriver.New())
		defer c.Close()
		l, err := c.RWMutex("demo").RLock(t.Context())
		require.NoError(t, err)
		w.use(t.Context(), l)
		assert.Equal(t, "worker-1 R found 2 where it should have been 1", w.Anomaly)
	})
}

func TestTheCounterRefusesAWriterWhenALaterOneHasReadIt(t *testing.T) {
	r, out := newRunInMemory(t, t.Context(), "-workers", "3")
	first := attempt{Number: 1, Mode: dlock.Exclusive, Token: 7}
	second := attempt{Number: 2, Mode: dlock.Exclusive, Token: 8}
	reader := attempt{Number: 3, Mode: dlock.Shared, Token: 9}
	r.answer(message{Do: askRead, Attempt: second})
	r.answer(message{Do: askRead, Attempt: reader}) // must not make the counter refuse a writer
	r.answer(message{Do: askWrite, Attempt: first, Value: 1})
	r.answer(message{Do: askWrite, Attempt: second, Value: 2})
	assert.Equal(t, counter{value: 2, sum: 2, seen: 8}, r.counter)
	assert.Equal(t, 1, strings.Count(out.String(), "REFUSED   0 + 1 = 1 with token 7: the counter has seen token 8\n"))
}

// Any client can choose node names, which must not manipulate an operator's
// terminal.
func TestHostileNamesInAQueueReachNoTerminal(t *testing.T) {
	for _, host := range []string{"x\u202e\u200b", strings.Repeat("long", 50_000), "x\u2028VERDICT: OK"} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			r, out := newRunInMemory(t, ctx)
			require.NoError(t, r.store.Faults().PutNode("demo", host+"-W-0000000000", []byte("\x1b[2J")))
			require.NoError(t, r.play())
			assert.Contains(t, out.String(), "in the queue behind")
			for _, bad := range []string{"\u202e", "\u200b", "\u2028", "\x1b", strings.Repeat("long", 2500)} {
				assert.NotContains(t, out.String(), bad)
			}
		})
	}
}

func TestTextFromElsewhereIsSafeToPrint(t *testing.T) {
	assert.Equal(t, "a b\ufffd[2J", clean("a\n\tb\x1b[2J"))
	assert.Len(t, clean(strings.Repeat("long", 50_000)), 2000)
}

func TestArgumentsThatAreNotValidAreUsageErrors(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"-workers", "101"}, "-workers 101: must be from 1 to 100"},
		{[]string{"-workers", "-1"}, "-workers -1"},
		{[]string{"-workers", "many"}, "-workers"},
		{[]string{"-workers", "1", "-fault", "pause"}, "-workers 1: must be from 2 to 100"},
		{[]string{"-hold", "-1s"}, "-hold -1s: must not be negative"},
		{[]string{"-dsn", "localhost:6379"}, "-dsn needs the -driver of its store"},
		{[]string{"-lock", "/x"}, "bad name"},
		{[]string{"-lock", "a\x1b"}, `"a\x1b"`},
		{[]string{"-driver", "zk"}, "needs -dsn"},
		{[]string{"-driver", "zk", "-dsn", "x"}, "this program has the drivers apart, mem, refusing, and github.com/dlock-go/dlock/contrib/cmd/dlock has all"},
		{[]string{"-driver", "none", "-dsn", "x"}, `unknown driver "none"`},
		{[]string{"-colour"}, "-colour"},
		{[]string{"-fault", "sleep"}, "-fault sleep: must be pause, cut or kill"},
		{[]string{"-fault", "kill"}, "a store in memory dies with its process"},
		{[]string{"-fault", "cut", "-driver", "apart", "-dsn", "x"}, "a connection of -driver apart cannot be cut"},
		{[]string{"more"}, `unexpected argument "more"`},
	} {
		var stdout, stderr bytes.Buffer
		assert.Equal(t, statusUsage, Main(t.Context(), c.args, &stdout, &stderr), "%q", c.args)
		assert.Contains(t, stderr.String(), c.says)
		assert.NotContains(t, stderr.String(), "\x1b")
		assert.Contains(t, stderr.String(), "Run 'dlock demo -h' for help\n")
		assert.Empty(t, stdout.String(), "%q", c.args)
	}
}

// All local users can see arguments, and a DSN may contain a password.
func TestTheDSNMayComeFromTheEnvironment(t *testing.T) {
	t.Setenv(dsnVariable, "environment")
	for want, args := range map[string][]string{
		"environment": {"-driver", "apart"}, "flag": {"-driver", "apart", "-dsn", "flag"}, "": nil,
	} {
		s, err := parse(args)
		require.NoError(t, err)
		assert.Equal(t, want, s.DSN)
	}
}

func TestHelpShowsAllFlags(t *testing.T) {
	var stdout, stderr bytes.Buffer
	require.Equal(t, statusOK, Main(t.Context(), []string{"-h"}, &stdout, &stderr))
	for _, flag := range []string{"-driver", "-dsn", "-lock", "-workers", "-hold", "-fault", "-svg"} {
		assert.Contains(t, stdout.String(), "  "+flag+" ")
	}
	assert.Empty(t, stderr.String())
}

func TestAPictureThatCannotBeWrittenIsAnError(t *testing.T) {
	var stdout, stderr bytes.Buffer
	name := filepath.Join(t.TempDir(), "no", "x.svg")
	assert.Equal(t, statusBad, Main(t.Context(), []string{"-workers", "1", "-hold", "1ms", "-svg", name}, &stdout, &stderr))
	assert.Contains(t, stderr.String(), "dlock demo: -svg: open "+name+": ")
	assert.Contains(t, stdout.String(), "VERDICT: OK\n")
}

func TestTheServerIsFoundInTheDSN(t *testing.T) {
	for _, c := range []struct{ driver, dsn, server string }{
		{"zk", "zk://zk1:2181/locks", "zk1:2181"},
		{"zk", "zk://alice:ge@heim@zk1/locks?acl=digest", ""},
		{"zk", "zk://alice:geheim@zk1/locks?acl=digest", "zk1"},
		{"zk", "zk://zk1:2181,zk2:2181/locks", ""},
		{"redis", "redis://[::1]:6379", "[::1]:6379"},
		{"etcd", "etcd://localhost:2379?session_timeout=5s", "localhost:2379"},
		{"nats", "nats://user:geheim@localhost:4222/locks", "localhost:4222"},
		{"postgres", "postgres://user:geheim@db/jobs?sslmode=disable", "db"},
		{"postgres", "host=db user=alice", ""},
		{"mysql", "user:ge(heim@tcp(db:3306)/jobs", "db:3306"},
		{"mysql", "user@unix(/run/mysqld.sock)/jobs", ""},
		{"sqlite", "/tmp/locks.db", ""},
	} {
		before, server, after, err := (&settings{Driver: c.driver, DSN: c.dsn}).splitDSN()
		if c.server == "" {
			assert.ErrorContains(t, err, "-fault cut: ", "%s", c.dsn)
			assert.NotContains(t, err.Error(), "geheim")
		} else if assert.NoError(t, err, "%s", c.dsn) {
			assert.Equal(t, c.server, server)
			assert.Equal(t, c.dsn, before+server+after)
		}
	}
}
