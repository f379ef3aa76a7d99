package work

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// memory is a lock library for tests. It has a single lock, in memory.
type memory struct {
	mu      sync.RWMutex
	closed  sync.WaitGroup
	locked  int         // exclusive acquisitions; guarded by mu
	granted []time.Time // guarded by mu

	fault error // returned by lock
}

func (m *memory) open(Plan) (session, error) { m.closed.Add(1); return memorySession{m}, nil }

type memorySession struct{ m *memory }

func (s memorySession) contender(string) (contender, error) { return &memoryContender{m: s.m}, nil }
func (s memorySession) close() error                        { s.m.closed.Done(); return nil }

type memoryContender struct{ m *memory }

func (c *memoryContender) lock() error {
	if c.m.fault != nil {
		return c.m.fault
	}
	c.m.mu.Lock()
	c.m.locked++
	c.m.granted = append(c.m.granted, time.Now())
	return nil
}

func (c *memoryContender) unlock() error  { c.m.mu.Unlock(); return nil }
func (c *memoryContender) rlock() error   { c.m.mu.RLock(); return nil }
func (c *memoryContender) runlock() error { c.m.mu.RUnlock(); return nil }

func (c *memoryContender) tryLock() (bool, error) { return c.m.mu.TryLock(), nil }

func do(t *testing.T, m *memory, p Plan) Report {
	t.Helper()
	r, err := openRound(m.open, p)
	require.NoError(t, err)
	report, err := r.measure()
	require.NoError(t, err)
	require.NoError(t, r.close())
	m.closed.Wait()
	require.Positive(t, report.Seconds)
	require.GreaterOrEqual(t, report.Allocs, int64(0))
	return report
}

// doForATime runs a plan. If nothing was done within the plan's duration, as on
// a slow machine, it doubles the duration and tries again.
func doForATime(t *testing.T, p Plan) (*memory, Report) {
	t.Helper()
	for ; ; p.Millis *= 2 {
		m := &memory{}
		report := do(t, m, p)
		if report.Tries > 0 || slices.Max(report.Counts) > 0 {
			return m, report
		}
		require.Less(t, p.Millis, 60_000, "no contender has done anything")
	}
}

func TestLoopCountsForEveryContender(t *testing.T) {
	m := &memory{}
	report := do(t, m, Plan{Kind: Loop, Sessions: 2, Contenders: 4, Millis: 20})
	var sum int64
	for _, n := range report.Counts {
		sum += n
	}
	require.Len(t, report.Counts, 4)
	require.EqualValues(t, m.locked, sum+2, "and one for each session before the measurement")
	require.Empty(t, report.Latencies)
}

func TestLoopOfOneContenderReportsLatencies(t *testing.T) {
	_, report := doForATime(t, Plan{Kind: Loop, Sessions: 1, Contenders: 1, Millis: 5})
	require.NotEmpty(t, report.Latencies)
	require.LessOrEqual(t, int64(len(report.Latencies)), report.Counts[0])
}

func TestThinnedListKeepsValuesFromTheWholeTime(t *testing.T) {
	var few, many thinnedList
	for i := range int64(10) {
		few.add(i)
	}
	require.Len(t, few.kept, 10, "all of them")
	const all = 5 * maxKept
	for i := range int64(all) {
		many.add(i)
	}
	require.Less(t, len(many.kept), maxKept)
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
	m, report := doForATime(t, Plan{Kind: Loop, Sessions: 2, Contenders: 2, Reads: 100, Millis: 5})
	require.Equal(t, 2, m.locked, "only before the measurement")
	require.Positive(t, report.Counts[0]+report.Counts[1])
}

func TestDrainGrantsEveryContenderOnce(t *testing.T) {
	report := do(t, &memory{}, Plan{Kind: Drain, Sessions: 3, Contenders: 50})
	for _, n := range report.Counts {
		require.EqualValues(t, 1, n)
	}
}

func TestDrainIsTimedFromTheLastUntimedGrant(t *testing.T) {
	m := &memory{}
	r, err := openRound(m.open, Plan{Kind: Drain, Sessions: 1, Contenders: 5, Untimed: 3})
	require.NoError(t, err)
	_, err = r.measure()
	require.NoError(t, err)
	// The first two grants are those of the session's warm-up and of the
	// holder.
	granted := m.granted[2:]
	require.Len(t, granted, 5)
	require.False(t, r.timedFrom.at.Before(granted[2]), "the third")
	require.False(t, r.timedFrom.at.After(granted[3]), "the fourth")
	require.NoError(t, r.close())
	m.closed.Wait()
}

func TestDrainWithHoldsMeasuresEachTimedHandOver(t *testing.T) {
	report := do(t, &memory{}, Plan{Kind: Drain, Sessions: 3, Contenders: 8, Untimed: 3, Hold: 1})
	require.Len(t, report.Latencies, 5)
	for _, ns := range report.Latencies {
		require.GreaterOrEqual(t, ns, int64(0))
	}
	require.GreaterOrEqual(t, report.Seconds, 0.005)
}

func TestTryWinsNothingWhileTheLockIsHeld(t *testing.T) {
	_, report := doForATime(t, Plan{Kind: Try, Sessions: 2, Contenders: 2, Held: true, Millis: 5})
	require.Equal(t, []int64{0, 0}, report.Counts)
	require.Positive(t, report.Tries)
}

func TestTryUnlocksAfterEachSuccess(t *testing.T) {
	report := do(t, &memory{}, Plan{Kind: Try, Sessions: 1, Contenders: 1, Millis: 5})
	require.Equal(t, report.Tries, report.Counts[0], "there is no other contender")
}

func TestPassReportsTheLatencyOfEveryHandOver(t *testing.T) {
	report := do(t, &memory{}, Plan{Kind: Pass, Sessions: 2, Contenders: 2, Millis: 1, Count: 7})
	require.Equal(t, []int64{4, 3}, report.Counts)
	require.Len(t, report.Latencies, 7)
	for _, ns := range report.Latencies {
		require.Positive(t, ns)
	}
}

func TestErrorOfAContenderIsReported(t *testing.T) {
	m := &memory{}
	r, err := openRound(m.open, Plan{Kind: Loop, Sessions: 1, Contenders: 2, Millis: 1000})
	require.NoError(t, err)
	m.fault = errors.New("no quorum")
	_, err = r.measure()
	require.ErrorContains(t, err, "no quorum")
	require.NoError(t, r.close())
}

func TestSessionsAreClosedIfTheRoundDoesNotOpen(t *testing.T) {
	m := &memory{fault: errors.New("no quorum")}
	_, err := openRound(m.open, Plan{Kind: Loop, Sessions: 3, Contenders: 3})
	require.ErrorIs(t, err, m.fault)
	m.closed.Wait()
}

func TestChildAnswersEveryCommandWithOneLine(t *testing.T) {
	m := &memory{}
	libraries["test"] = m.open
	defer delete(libraries, "test")
	commands, command := io.Pipe()
	answer, answers := io.Pipe()
	ended := make(chan error)
	go func() { ended <- Serve("test", commands, answers) }()
	lines := bufio.NewReader(answer)
	ask := func(line string) string {
		_, err := fmt.Fprintln(command, line)
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
	m.closed.Wait()
	require.Equal(t, `error bench: unknown command "dance"`, ask("dance"))
	require.NoError(t, command.Close())
	require.NoError(t, <-ended)
}

// Older revisions use these names in plans and reports, so the names must not
// change.
func TestPlansAndReportsKeepTheirNames(t *testing.T) {
	text, err := json.Marshal(Plan{})
	require.NoError(t, err)
	require.Equal(t, `{"kind":"","server":"","path":"","sessions":0,"contenders":0,"reads":0,"held":false,"millis":0,"count":0,"lead":0,"timeout":0}`, string(text))
	text, err = json.Marshal(Report{})
	require.NoError(t, err)
	require.Equal(t, `{"seconds":0,"cpu":0,"counts":null,"tries":0,"latencies":null,"allocs":0}`, string(text))
}

func TestPlanWithAnUnknownFieldIsRefused(t *testing.T) {
	var c child
	_, err := c.execute(`prepare {"kind":"loop","colour":"blue"}`)
	require.ErrorContains(t, err, `unknown field "colour"`)
}
