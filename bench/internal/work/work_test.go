package work

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// world is a library in memory: what the kinds of plans do is the same with any.
type world struct {
	mu     sync.RWMutex
	closed sync.WaitGroup
	inside int // guarded by mu
	let    []time.Time

	fault error // of lock
}

func (w *world) open(Plan) (session, error) { w.closed.Add(1); return worldSession{w}, nil }

type worldSession struct{ w *world }

func (s worldSession) contender(string) (contender, error) { return &worldContender{w: s.w}, nil }
func (s worldSession) close() error                        { s.w.closed.Done(); return nil }

type worldContender struct{ w *world }

func (c *worldContender) lock() error {
	if c.w.fault != nil {
		return c.w.fault
	}
	c.w.mu.Lock()
	c.w.inside++
	c.w.let = append(c.w.let, time.Now())
	return nil
}

func (c *worldContender) unlock() error  { c.w.mu.Unlock(); return nil }
func (c *worldContender) rlock() error   { c.w.mu.RLock(); return nil }
func (c *worldContender) runlock() error { c.w.mu.RUnlock(); return nil }

func (c *worldContender) tryLock() (bool, error) { return c.w.mu.TryLock(), nil }

func do(t *testing.T, w *world, p Plan) Report {
	t.Helper()
	r, err := openRound(w.open, p)
	require.NoError(t, err)
	report, err := r.measure()
	require.NoError(t, err)
	require.NoError(t, r.close())
	w.closed.Wait()
	require.Positive(t, report.Seconds)
	require.GreaterOrEqual(t, report.Allocs, int64(0))
	return report
}

func TestLoopCountsForEveryContender(t *testing.T) {
	w := &world{}
	report := do(t, w, Plan{Kind: Loop, Sessions: 2, Contenders: 4, Millis: 20})
	var sum int64
	for _, n := range report.Counts {
		sum += n
	}
	require.Len(t, report.Counts, 4)
	require.EqualValues(t, w.inside, sum+2, "and one for each session before")
	require.Empty(t, report.Latencies)
}

func TestLoopOfOneContenderTakesTheTimes(t *testing.T) {
	report := do(t, &world{}, Plan{Kind: Loop, Sessions: 1, Contenders: 1, Millis: 5})
	require.NotEmpty(t, report.Latencies)
	require.LessOrEqual(t, int64(len(report.Latencies)), report.Counts[0])
}

func TestThinningKeepsValuesFromAllTheTime(t *testing.T) {
	var few, many thinnedList
	for i := range int64(10) {
		few.add(i)
	}
	require.Len(t, few.kept, 10, "all of them")
	const all = 5 * mostKept
	for i := range int64(all) {
		many.add(i)
	}
	require.Less(t, len(many.kept), mostKept)
	for i, v := range many.kept {
		require.EqualValues(t, i*many.stride, v)
	}
	require.Greater(t, many.kept[len(many.kept)-1], int64(all-many.stride-1))
}

func TestLoopWithReadersTakesSharedLocksAsOftenAsPlanned(t *testing.T) {
	shared := percentages(3)
	var below int
	for range 10_000 {
		if shared() < 95 {
			below++
		}
	}
	require.InDelta(t, 9500, below, 150)
	w := &world{}
	report := do(t, w, Plan{Kind: Loop, Sessions: 2, Contenders: 2, Reads: 100, Millis: 5})
	require.Equal(t, 2, w.inside, "only before")
	require.Positive(t, report.Counts[0]+report.Counts[1])
}

func TestDrainLetsEveryContenderInOnce(t *testing.T) {
	report := do(t, &world{}, Plan{Kind: Drain, Sessions: 3, Contenders: 50})
	for _, n := range report.Counts {
		require.EqualValues(t, 1, n)
	}
}

func TestDrainIsTimedFromWhenItsLeadHasBeenLetIn(t *testing.T) {
	w := &world{}
	r, err := openRound(w.open, Plan{Kind: Drain, Sessions: 1, Contenders: 5, Lead: 3})
	require.NoError(t, err)
	_, err = r.measure()
	require.NoError(t, err)
	let := w.let[2:] // before them one of each session, and the holder
	require.Len(t, let, 5)
	require.False(t, r.timedFrom.at.Before(let[2]), "the third")
	require.False(t, r.timedFrom.at.After(let[3]), "the fourth")
	require.NoError(t, r.close())
	w.closed.Wait()
}

func TestTryWinsNothingWhileTheLockIsHeld(t *testing.T) {
	report := do(t, &world{}, Plan{Kind: Try, Sessions: 2, Contenders: 2, Held: true, Millis: 5})
	require.Equal(t, []int64{0, 0}, report.Counts)
	require.Positive(t, report.Tries)
}

func TestTryUnlocksWhatItWins(t *testing.T) {
	report := do(t, &world{}, Plan{Kind: Try, Sessions: 1, Contenders: 1, Millis: 5})
	require.Equal(t, report.Tries, report.Counts[0], "nobody else is there")
}

func TestPassTakesTheTimeOfEveryHandOver(t *testing.T) {
	report := do(t, &world{}, Plan{Kind: Pass, Sessions: 2, Contenders: 2, Millis: 1, Count: 7})
	require.Equal(t, []int64{4, 3}, report.Counts)
	require.Len(t, report.Latencies, 7)
	for _, ns := range report.Latencies {
		require.Positive(t, ns)
	}
}

func TestAFaultOfAContenderIsReported(t *testing.T) {
	w := &world{}
	r, err := openRound(w.open, Plan{Kind: Loop, Sessions: 1, Contenders: 2, Millis: 1000})
	require.NoError(t, err)
	w.fault = errors.New("no such luck")
	_, err = r.measure()
	require.ErrorContains(t, err, "no such luck")
	require.NoError(t, r.close())
}

func TestSessionsAreClosedWhereAssemblingFails(t *testing.T) {
	w := &world{fault: errors.New("no such luck")}
	_, err := openRound(w.open, Plan{Kind: Loop, Sessions: 3, Contenders: 3})
	require.ErrorIs(t, err, w.fault)
	w.closed.Wait()
}

func TestChildAnswersEveryOrderWithOneLine(t *testing.T) {
	w := &world{}
	libraries["test"] = w.open
	defer delete(libraries, "test")
	orders, order := io.Pipe()
	answer, answers := io.Pipe()
	ended := make(chan error)
	go func() { ended <- Serve("test", orders, answers) }()
	lines := bufio.NewReader(answer)
	ask := func(line string) string {
		_, err := fmt.Fprintln(order, line)
		require.NoError(t, err)
		said, err := lines.ReadString('\n')
		require.NoError(t, err)
		return strings.TrimSuffix(said, "\n")
	}
	require.Contains(t, ask("go"), "error ")
	plan, err := json.Marshal(Plan{Kind: Loop, Sessions: 1, Contenders: 1, Millis: 1})
	require.NoError(t, err)
	require.Equal(t, "ready", ask("prepare "+string(plan)))
	said := ask("go")
	text, found := strings.CutPrefix(said, "report ")
	require.True(t, found, said)
	var report Report
	require.NoError(t, json.Unmarshal([]byte(text), &report))
	require.Equal(t, "ended", ask("end"))
	w.closed.Wait()
	require.Equal(t, `error bench: unknown order "dance"`, ask("dance"))
	require.NoError(t, order.Close())
	require.NoError(t, <-ended)
}

// An older child reads these names, see the comment of the package.
func TestPlansAndReportsKeepTheirNames(t *testing.T) {
	text, err := json.Marshal(Plan{})
	require.NoError(t, err)
	require.Equal(t, `{"kind":"","server":"","path":"","sessions":0,"contenders":0,"reads":0,"held":false,"millis":0,"count":0,"lead":0,"timeout":0}`, string(text))
	text, err = json.Marshal(Report{})
	require.NoError(t, err)
	require.Equal(t, `{"seconds":0,"cpu":0,"counts":null,"tries":0,"latencies":null,"allocs":0}`, string(text))
}

func TestAPlanThatAsksForMoreThanTheChildKnowsIsRefused(t *testing.T) {
	var c child
	_, err := c.obey(`prepare {"kind":"loop","colour":"blue"}`)
	require.ErrorContains(t, err, `unknown field "colour"`)
}
