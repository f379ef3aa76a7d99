package demo

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
)

// inThisOrder reports whether out contains the texts, one after the other.
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
		faultPause: {"worker-1 W  PAUSED", "worker-2 W  holds     exclusive, token 2", "worker-2 W  writes    6", "worker-1 W  wakes up", "worker-1 W  LOST"},
		faultCut:   {"worker-1 W  CUT OFF", "worker-1 W  LOST", "worker-2 W  holds     exclusive, token 2", "worker-2 W  writes    6"},
	} {
		t.Run(fault, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := play(t, t.Context(), nil, "-fault", fault)
				assert.Equal(t, statusOK, r.status, r.stdout)
				assert.Empty(t, r.stderr)
				steps := append([]string{"worker-1 W  holds     exclusive, token 1", "worker-2 W  waits"}, steps...)
				steps = append(steps, "worker-1 W  REFUSED   writing 9 with token 1: the stock has seen token 2", "worker-2 W  reads     6 in stock",
					"ok        late ", "There are 6 left", "Without tokens, the stock would now say 9", "VERDICT: OK\n")
				assert.True(t, inThisOrder(r.stdout, steps...), r.stdout)
				for line := range strings.Lines(r.stdout) {
					if !strings.Contains(line, "LOST") {
						assert.LessOrEqual(t, len(line), 90+1, line)
					}
				}
			})
		})
	}
}

func TestALateWriteThatIsNotRefusedBreaksARule(t *testing.T) {
	sc := newScene(&settings{Fault: faultPause}, newJournal(new(strings.Builder)))
	sc.write(question{Who: "w2", Token: 2, Value: 6})
	sc.write(question{Who: "w1", Token: 2, Value: 9, Late: true}) // as if the store had issued a token twice
	v := judgeLock([]*attempt{hold(dlock.Exclusive, 1, 0, 0, 10), hold(dlock.Exclusive, 2, 0, 20, 30)})
	sc.judge(v)
	assert.Equal(t, statusBad, v.status())
	assert.Contains(t, text(v), "VIOLATED  late      the late write was not refused: 9 are in stock")
	assert.Contains(t, text(v), "The stock\n     did not refuse it. Now it says that 9 are left.")
}

func TestASceneInWhichTheNextWorkerGivesUpIsAnError(t *testing.T) {
	for _, fault := range []string{faultPause, faultCut} {
		synctest.Test(t, func(t *testing.T) {
			r := play(t, t.Context(), nil, "-fault", fault, "-timeout", "1s")
			assert.Equal(t, statusBad, r.status)
			assert.Contains(t, r.stdout, "gives up  dlock: demo: timed out after 1s")
			assert.Contains(t, r.stdout, "Error: the scene ended early")
		})
	}
}

func TestAnInterruptEndsASceneInGoodOrder(t *testing.T) {
	for _, after := range []time.Duration{100 * time.Millisecond, time.Second, 2200 * time.Millisecond, 2900 * time.Millisecond} {
		for _, fault := range []string{faultPause, faultCut} {
			synctest.Test(t, func(t *testing.T) {
				ctx, interrupt := context.WithTimeout(t.Context(), after)
				defer interrupt()
				r := play(t, ctx, nil, "-fault", fault, "-dsn", "scene-"+fault+after.String()+"?session_timeout=2s")
				assert.Equal(t, statusOK, r.status, r.stdout)
				assert.Contains(t, r.stdout, "VERDICT: OK as far as it went, interrupted\n")
				c, err := dlock.Open("mem", "scene-"+fault+after.String())
				require.NoError(t, err)
				defer c.Close()
				left, err := c.RWMutex("demo").Queue(t.Context())
				require.NoError(t, err)
				assert.Empty(t, left)
			})
		}
	}
}

func TestTheServerIsFoundInTheDSN(t *testing.T) {
	for _, c := range []struct{ driver, dsn, server string }{
		{"zk", "zk://zk1:2181/locks", "zk1:2181"},
		{"zk", "zk://alice:ge@heim@zk1/locks?acl=digest", ""},
		{"zk", "zk://alice:geheim@zk1/locks?acl=digest", "zk1"},
		{"zk", "zk://zk1:2181,zk2:2181/locks", ""},
		{"redis", "redis://[::1]:6379", "[::1]:6379"},
		{"etcd", "etcd://localhost:2379?session_timeout=5s", "localhost:2379"},
		{"postgres", "postgres://user:geheim@db/jobs?sslmode=disable", "db"},
		{"postgres", "host=db user=alice", ""},
		{"mysql", "user:ge(heim@tcp(db:3306)/jobs", "db:3306"},
		{"mysql", "user@unix(/run/mysqld.sock)/jobs", ""},
		{"sqlite", "/tmp/locks.db", ""},
		{"file", "/tmp", ""},
	} {
		at, err := (&settings{Driver: c.driver, DSN: c.dsn}).serverInDSN()
		if c.server == "" {
			assert.ErrorContains(t, err, "-fault cut: ", "%s", c.dsn)
			assert.NotContains(t, err.Error(), "geheim")
		} else if assert.NoError(t, err, "%s", c.dsn) {
			assert.Equal(t, c.server, c.dsn[at[0]:at[1]])
		}
	}
}
