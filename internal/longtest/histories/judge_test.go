package histories

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/history"
	"github.com/dlock-go/dlock/internal/leakcheck"
)

// Histories of each of these stores must have been recorded.
var stores = []string{
	"virtual time", "run in memory", "zookeeper", "zookeeper ensemble", "etcd", "etcd ensemble",
	"redis", "postgres", "mysql", "sqlite", "nats",
}

// broken is the least number of deliberately broken locks in the records.
const broken = 20

func TestMain(m *testing.M) { os.Exit(leakcheck.After(m.Run())) }

func TestEachRecordedHistoryIsLinearizable(t *testing.T) {
	dir := os.Getenv(history.Directory)
	if dir == "" {
		t.Skip("the environment variable " + history.Directory + " names no directory of records: make histories")
	}
	records, err := history.Records(dir)
	require.NoError(t, err)
	judged := make(map[string]int)
	missing := make(map[string]int) // by broken lock: further refusals expected
	for _, r := range records {
		judged[r.Of]++
		if r.Broken == 0 {
			judge(t, r, dir)
			continue
		}
		if judged[r.Of] == 1 {
			missing[r.Of] = r.Broken
		}
		if refused(r) {
			missing[r.Of]--
		}
	}
	for of, n := range missing {
		if n > 0 {
			t.Errorf("%s: of %d histories, %d more have to be refused", of, judged[of], n)
		}
	}
	for _, of := range stores {
		if judged[of] == 0 {
			t.Errorf("no record of %s: its test of histories has not run", of)
		}
	}
	if len(missing) < broken {
		t.Errorf("%d locks that are broken on purpose, and %d at least are expected", len(missing), broken)
	}
	t.Logf("%d histories: %v", len(records), judged)
}

// mute is a testing.TB that collects errors, so that a test can expect a
// failure.
type mute struct {
	testing.TB
	text string
}

func (m *mute) Errorf(format string, args ...any) { m.text += fmt.Sprintf(format, args...) + "\n" }

func judged(t *testing.T, r *history.Record, verdict string) string {
	t.Helper()
	dir := t.TempDir()
	m := &mute{TB: t}
	judge(m, r, dir)
	require.Contains(t, m.text, verdict)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.Contains(t, m.text, files[0].Name())
	page, err := os.ReadFile(filepath.Join(dir, files[0].Name()))
	require.NoError(t, err)
	return string(page)
}

func grants(mode func(i int) history.Operation, n int) (all []history.Operation) {
	for i := range n {
		o := mode(i)
		o.Hold, o.Queue, o.Token = i+1, "q", int64(i+1)
		all = append(all, o)
	}
	return all
}

func TestAHistoryWithoutAnOrderIsDrawn(t *testing.T) {
	two := grants(func(i int) history.Operation {
		return history.Operation{Call: int64(2*i + 1), Return: int64(2*i + 2), Mode: w}
	}, 2)
	page := judged(t, &history.Record{
		Operations: two,
		Notes:      []history.Note{{Row: "faults", From: 1, To: 2, Text: "fault of the test", Details: "client 2, queue"}},
	}, "Illegal")
	for _, want := range []string{"exclusive, token 2", `"faults"`, "fault of the test", "client 2, queue"} {
		require.Contains(t, page, want)
	}
}

func TestARuleThatIsBrokenIsDrawn(t *testing.T) {
	judged(t, &history.Record{Wrong: []string{"the client was closed at 2"}}, "the client was closed at 2")
}

// A search that was not finished must count as a failure, because it proves
// nothing.
func TestASearchWithoutAnEndIsAFailure(t *testing.T) {
	defer func(was time.Duration) { searchLimit = was }(searchLimit)
	searchLimit = 20 * time.Millisecond
	readers := grants(func(int) history.Operation { return history.Operation{Call: 1, Return: 100, Mode: r} }, 40)
	impossible := history.Operation{Kind: history.Answer, Hold: 8, Queue: "q", Call: 101, Return: 102, Mode: w}
	judged(t, &history.Record{Operations: append(readers, impossible)}, "Unknown")
}
