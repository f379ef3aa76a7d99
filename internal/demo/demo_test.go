package demo

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes"
)

type result struct {
	status         int
	stdout, stderr string
}

// play runs the demo with these arguments. It uses the real lock if open is
// nil.
func play(t *testing.T, ctx context.Context, open opener, args ...string) (r result) {
	t.Helper()
	s, err := parse(args)
	require.NoError(t, err)
	if open == nil {
		open = s.open
	}
	var stdout, stderr bytes.Buffer
	r.status = run(ctx, s, open, &stdout, &stderr)
	r.stdout, r.stderr = stdout.String(), stderr.String()
	return r
}

func TestARunWithDefaultSettingsIsOK(t *testing.T) {
	for _, seed := range []string{"1", "2", "3", "4", "5"} {
		synctest.Test(t, func(t *testing.T) {
			r := play(t, t.Context(), nil, "-seed", seed)
			assert.Equal(t, statusOK, r.status, r.stdout)
			assert.Contains(t, r.stdout, "VERDICT: OK\n")
			assert.Contains(t, r.stdout, "Gave up: 0. Lost: 0.")
			assert.Equal(t, 10, strings.Count(r.stdout, "  holds  "), r.stdout)
			assert.Equal(t, 10, strings.Count(r.stdout, "  releases\n"), r.stdout)
			assert.Empty(t, r.stderr)
		})
	}
}

func TestASeedRepeatsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, picture, found := strings.Cut(play(t, t.Context(), nil, "-seed", "5").stdout, "Holds")
		require.True(t, found)
		assert.True(t, strings.HasPrefix(picture, ` in order of arrival; a column is 10ms

               |0s       |100ms    |200ms    |300ms    |400ms
  worker-03 R   rrrrrrrrrr
`), picture)
		_, again, _ := strings.Cut(play(t, t.Context(), nil, "-seed", "5").stdout, "Holds")
		assert.Equal(t, picture, again)
	})
}

func TestSeveralRoundsInRealTimeAreOK(t *testing.T) {
	r := play(t, t.Context(), nil, "-workers", "8", "-rounds", "5", "-hold", "2ms", "-timeout", "1m")
	assert.Equal(t, statusOK, r.status, r.stdout)
	assert.Contains(t, r.stdout, "VERDICT: OK\n")
	assert.Equal(t, 40, strings.Count(r.stdout, "  holds  "))
}

func TestAHoldOfNoLengthIsOK(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := play(t, t.Context(), nil, "-hold", "0", "-rounds", "3")
		assert.Equal(t, statusOK, r.status, r.stdout)
	})
}

// noLock grants the lock to every worker at once.
type noLock struct {
	trace *recipes.Trace
	next  func() int64
}

type notHeld int64

func (n notHeld) Token() int64          { return int64(n) }
func (n notHeld) Err() error            { return nil }
func (n notHeld) Lost() <-chan struct{} { return nil }
func (n notHeld) Unlock() error         { return nil }

func (n noLock) Ping(context.Context) error { return nil }
func (n noLock) Close() error               { return nil }
func (n noLock) Lock(ctx context.Context, _ dlock.Mode) (held, error) {
	seq := n.next()
	n.trace.Queued(ctx, recipes.QueuedInfo{Place: driver.Place{Node: driver.Node{Name: driver.FormatName("x-W-", seq), Seq: seq}, Token: seq}})
	return notHeld(seq), nil
}

func openNoLock() opener {
	var mu sync.Mutex
	var seq int64
	return func(_ string, trace *recipes.Trace) (locker, error) {
		return noLock{trace, func() int64 {
			mu.Lock()
			defer mu.Unlock()
			seq++
			return seq
		}}, nil
	}
}

func TestALockThatDoesNotExcludeIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := play(t, t.Context(), openNoLock(), "-seed", "1")
		assert.Equal(t, statusBad, r.status)
		assert.Contains(t, r.stdout, "VIOLATED  alone")
		assert.Contains(t, r.stdout, "VIOLATED  counter")
		assert.Contains(t, r.stdout, "VERDICT: VIOLATED")
	})
}

func TestAWorkerThatWaitsTooLongGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := play(t, t.Context(), nil, "-shared-ratio", "0", "-workers", "3", "-hold", "1s", "-timeout", "500ms")
		assert.Equal(t, statusOK, r.status, r.stdout)
		assert.Contains(t, r.stdout, "gives up  dlock: demo: timed out after 500ms: held by ")
		assert.Contains(t, r.stdout, ".x\n")
		assert.NotContains(t, r.stdout, "Gave up: 0")
	})
}

func TestAnInterruptReleasesEverythingAndJudges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithTimeout(t.Context(), 150*time.Millisecond)
		defer interrupt()
		r := play(t, ctx, nil, "-driver", "mem", "-dsn", "interrupted", "-shared-ratio", "0", "-hold", "1h", "-timeout", "2h")
		assert.Equal(t, statusOK, r.status, r.stdout)
		// Only the sum is known, because a waiter may still be granted the lock
		// before the interrupt reaches all workers.
		assert.Equal(t, 10, strings.Count(r.stdout, "  releases\n")+strings.Count(r.stdout, "  leaves  "))
		assert.Contains(t, r.stdout, "  releases\n")
		assert.Contains(t, r.stdout, "none of 0 increments was lost")
		assert.Contains(t, r.stdout, "Interrupted: 10.")
		assert.Contains(t, r.stdout, "VERDICT: OK as far as it went, interrupted\n")

		c, err := dlock.Open("mem", "interrupted")
		require.NoError(t, err)
		defer c.Close()
		left, err := c.RWMutex("demo").Queue(t.Context())
		require.NoError(t, err)
		assert.Empty(t, left)
	})
}

func TestAnInterruptBeforeTheBeginningGivesNoVerdict(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	r := play(t, ctx, nil)
	assert.Equal(t, statusBad, r.status)
	assert.Contains(t, r.stderr, "interrupted before it began")
}

type unreachable struct{ noLock }

func (unreachable) Ping(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

func TestAStoreThatDoesNotAnswerIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := play(t, t.Context(), func(string, *recipes.Trace) (locker, error) { return unreachable{}, nil })
		assert.Equal(t, statusBad, r.status)
		assert.Contains(t, r.stderr, "no session within 10s")
		assert.Less(t, time.Since(began), 11*time.Second)
	})
}

type flaky struct {
	noLock
	tries int
}

func (f *flaky) Ping(context.Context) error {
	if f.tries++; f.tries < 3 {
		return dlock.ErrUnavailable
	}
	return nil
}

func TestConnectingIsTriedAgainWhileTheErrorMayPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := openNoLock()
		r := play(t, t.Context(), func(host string, trace *recipes.Trace) (locker, error) {
			l, err := locks(host, trace)
			return &flaky{noLock: l.(noLock)}, err
		}, "-workers", "1")
		assert.Equal(t, statusOK, r.status, r.stderr)
	})
}

type lossy struct {
	noLock
	after time.Duration
}

type lostHold struct {
	notHeld
	lost chan struct{}
}

func (f lossy) Lock(ctx context.Context, mode dlock.Mode) (held, error) {
	h, _ := f.noLock.Lock(ctx, mode)
	lost := make(chan struct{})
	time.AfterFunc(f.after, func() { close(lost) })
	return lostHold{h.(notHeld), lost}, nil
}

func (f lostHold) Lost() <-chan struct{} { return f.lost }
func (f lostHold) Unlock() error         { return f.Err() }
func (f lostHold) Err() error {
	select {
	case <-f.lost:
		return errors.Join(dlock.ErrLost)
	default:
		return nil
	}
}

func TestALostLockEndsTheHoldAndBreaksNoRule(t *testing.T) {
	for _, after := range []time.Duration{0, 35 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			locks := openNoLock()
			r := play(t, t.Context(), func(host string, trace *recipes.Trace) (locker, error) {
				l, err := locks(host, trace)
				return lossy{l.(noLock), after}, err
			}, "-workers", "1", "-rounds", "2", "-shared-ratio", "0")
			assert.Contains(t, r.stdout, "LOST      lock lost\n")
			assert.Contains(t, r.stdout, "Lost: 2.")
			assert.NotContains(t, r.stdout, "releases")
			assert.NotContains(t, r.stdout, "VIOLATED")
		})
	}
}

func TestNamesFromTheStoreAreQuoted(t *testing.T) {
	var out bytes.Buffer
	w := &worker{name: "w1", log: newJournal(&out), attempt: &attempt{Worker: "w1", Mode: dlock.Shared}}
	trace := w.trace()
	trace.Waiting(t.Context(), recipes.WaitingInfo{Predecessor: "x\x1b[2J-W-0000000001", Position: 2})
	trace.Retrying(t.Context(), recipes.RetryingInfo{Err: errors.New("\x1b[2J")})
	trace.SessionEnded(t.Context(), recipes.SessionEndedInfo{Err: errors.New("\x1b[2J")})
	assert.NotContains(t, out.String(), "\x1b")
	assert.Contains(t, out.String(), `no. 2 in the queue behind x\x1b[2J-W-0000000001`)
}
