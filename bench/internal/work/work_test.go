package work

import (
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// memory is an in-memory lock library with a single lock.
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

func TestLoopCountsForEveryContender(t *testing.T) {
	m := &memory{}
	report := do(t, m, Plan{Kind: Loop, Sessions: 2, Contenders: 4, Millis: 20})
	require.Len(t, report.Counts, 4)
	sum := report.Counts[0] + report.Counts[1] + report.Counts[2] + report.Counts[3]
	require.EqualValues(t, m.locked, sum+2, "and one for each session before the measurement")
	require.Empty(t, report.Latencies)
	report = do(t, &memory{}, Plan{Kind: Loop, Sessions: 1, Contenders: 1, Millis: 100})
	require.Len(t, report.Latencies, int(report.Counts[0]), "of one contender")
	require.NotEmpty(t, report.Latencies)
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
	m := &memory{}
	report := do(t, m, Plan{Kind: Loop, Sessions: 2, Contenders: 2, Reads: 100, Millis: 1000})
	require.Equal(t, 2, m.locked, "only before the measurement")
	require.Positive(t, report.Counts[0]+report.Counts[1])
}

func TestDrainGrantsEachOnceAndIsTimedFromTheLastUntimedGrant(t *testing.T) {
	m := &memory{}
	r, err := openRound(m.open, Plan{Kind: Drain, Sessions: 1, Contenders: 5, Untimed: 3})
	require.NoError(t, err)
	report, err := r.measure()
	require.NoError(t, err)
	require.Equal(t, []int64{1, 1, 1, 1, 1}, report.Counts)
	// The first two grants went to the session's warm-up and to the holder.
	granted := m.granted[2:]
	require.Len(t, granted, 5)
	require.False(t, r.timedFrom.Before(granted[2]), "the third")
	require.False(t, r.timedFrom.After(granted[3]), "the fourth")
	require.NoError(t, r.close())
	m.closed.Wait()
}

func TestTryWinsALockUnlessItIsHeld(t *testing.T) {
	report := do(t, &memory{}, Plan{Kind: Try, Sessions: 2, Contenders: 2, Held: true, Millis: 100})
	require.Equal(t, []int64{0, 0}, report.Counts)
	require.Positive(t, report.Tries)
	report = do(t, &memory{}, Plan{Kind: Try, Sessions: 1, Contenders: 1, Millis: 5})
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
	plan, err := json.Marshal(Plan{Kind: Loop, Sessions: 1, Contenders: 1, Millis: 1})
	require.NoError(t, err)
	commands := []string{"go", "prepare " + string(plan), "go", "end", "dance", `prepare {"kind":"loop","colour":"blue"}`}
	var answers strings.Builder
	require.NoError(t, Serve("test", strings.NewReader(strings.Join(commands, "\n")), &answers))
	lines := strings.Split(answers.String(), "\n")
	text, found := strings.CutPrefix(lines[2], "report ")
	require.True(t, found, lines[2])
	require.NoError(t, json.Unmarshal([]byte(text), &Report{}))
	lines[2] = "report"
	require.Equal(t, []string{
		"error bench: go without prepare", "ready", "report", "ended",
		`error bench: unknown command "dance"`, `error json: unknown field "colour"`, "",
	}, lines)
	m.closed.Wait()
}

// Older revisions use these names in plans and reports, so the names must not
// change.
func TestPlansAndReportsKeepTheirNames(t *testing.T) {
	text, err := json.Marshal(Plan{})
	require.NoError(t, err)
	require.Equal(t, `{"kind":"","server":"","path":"","sessions":0,"contenders":0,"reads":0,"held":false,"millis":0,"count":0,"lead":0,"timeout":0}`, string(text))
	text, err = json.Marshal(Report{})
	require.NoError(t, err)
	require.Equal(t, `{"seconds":0,"counts":null,"tries":0,"latencies":null,"allocs":0}`, string(text))
}
