package recipes

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes/internal/entry"
)

func TestOnlyWhatIsBeforeAContenderBlocksIt(t *testing.T) {
	for _, c := range []struct {
		queue string // one letter per node; X is unknown
		i     int
		mode  Mode
		want  int
	}{
		{"W", 0, Exclusive, -1},
		{"R", 0, Shared, -1},
		{"WWW", 2, Exclusive, 1},
		{"RRW", 2, Exclusive, 1},
		{"RRR", 2, Shared, -1},
		{"WRRR", 3, Shared, 0},
		{"WRWR", 3, Shared, 2},
		{"RWRR", 3, Shared, 1},
		{"RWW", 0, Shared, -1}, // writers behind a reader do not block it
		{"XR", 1, Shared, 0},   // unknown kinds count as exclusive
		{"RX", 1, Exclusive, 0},
		{"RXR", 2, Shared, 1},
	} {
		var nodes []driver.Node
		for i, kind := range c.queue {
			nodes = append(nodes, driver.Node{Name: fmt.Sprintf("h-%c-%010d", kind, i), Seq: int64(i)})
		}
		var blocking []driver.Node
		if c.want >= 0 {
			blocking = nodes[c.want : c.want+1]
		}
		assert.ElementsMatch(t, blocking, wantFor(c.mode).rule(nodes[:c.i]), "%v", c)
	}
}

func wantFor(m Mode) *want {
	if m == Shared {
		return reader
	}
	return writer
}

// Calling reader.rule for every node would take time in proportion to n^2.
func TestAQueueIsDescribedInOnePass(t *testing.T) {
	looked := 0
	rule := reader.rule
	defer func() { reader.rule = rule }()
	reader.rule = func(ahead []driver.Node) []driver.Node {
		looked += len(ahead)
		return rule(ahead)
	}
	var nodes []driver.Node
	for i := range int64(4000) {
		nodes = append(nodes, driver.Node{Name: driver.FormatName("web1-R-", i), Seq: i})
	}
	for _, c := range listed(nodes, nil) {
		require.True(t, c.Holds)
	}
	h := &hold{want: reader, entry: new(entry.Entry)}
	require.False(t, h.blocks(nodes))
	assert.LessOrEqual(t, looked, len(nodes))
}

func TestContendersHoldAsTheRulesSay(t *testing.T) {
	prefixes := []string{"a-R-", "b-R-", "c-W-", "d-S1of3-", "e-H2of3-", "f-S2of4-", "other-"}
	for range 2000 {
		var nodes []driver.Node
		few := rand.Perm(len(prefixes))[:1+rand.IntN(3)] // few, because random contenders seldom share the lock
		for i := range int64(6) {
			nodes = append(nodes, driver.Node{Name: driver.FormatName(prefixes[few[rand.IntN(len(few))]], i), Seq: i})
		}
		for i, c := range listed(nodes, nil) {
			require.Equal(t, len(wantOf(nodes[i]).rule(nodes[:i])) == 0, c.Holds, "%d of %v", i, nodes)
		}
	}
}

func TestHostnameIsMadeFitForNames(t *testing.T) {
	for in, want := range map[string]string{
		"":                       "unknown",
		"web1.example-2_x":       "web1.example-2_x",
		"a/b c":                  "a%2Fb%20c",
		"100%":                   "100%25",
		"é":                      "%C3%A9",
		"\x00\n":                 "%00%0A",
		strings.Repeat("h", 300): strings.Repeat("h", 200),
		strings.Repeat("/", 100): strings.Repeat("%2F", 66), // cut at 198 bytes, not within %2F
	} {
		got := encodeHostname(in)
		assert.Equal(t, want, got)
		assert.NoError(t, driver.CheckPrefix(got+exclusiveKind))
	}
}

func FuzzHostname(f *testing.F) {
	for _, s := range []string{"", "web1", "a/b", strings.Repeat("é", 150), "%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		for _, w := range []*want{reader, writer} {
			prefix := encodeHostname(name) + w.kind
			require.NoError(t, driver.CheckPrefix(prefix))
			require.Same(t, w, wantOf(driver.Node{Name: driver.FormatName(prefix, 7), Seq: 7}))
		}
	})
}

func TestOrdinals(t *testing.T) {
	for n, want := range map[int]string{1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th", 21: "21st", 111: "111th", 122: "122nd"} {
		assert.Equal(t, want, ordinal(n))
	}
}

func TestNodeNamesReachTheTerminalEscaped(t *testing.T) {
	err := &timeoutError{lock: "q", after: time.Second, holder: "evil\x1b[2J-W-0000000001", ahead: 2}
	assert.NotContains(t, err.Error(), "\x1b")
	assert.Contains(t, err.Error(), `"evil\x1b[2J-W-0000000001"`)
}

func TestPollOfNoTimePausesAllTheSame(t *testing.T) {
	assert.Positive(t, Poll(0).wait.NextPoll())
}

func TestPollOfTheLongestTimePausesAllTheSame(t *testing.T) {
	for range 100 {
		assert.Positive(t, Poll(math.MaxInt64).wait.NextPoll())
	}
}

type hangingConnector struct{ begun chan struct{} }

func (c hangingConnector) Connect(ctx context.Context) (driver.Session, error) {
	close(c.begun)
	<-ctx.Done()
	return nil, driver.ErrUnavailable
}

// The race detector would report an attempt that changes the client while it is
// printed.
func TestNoAttemptToConnectGoesOnAfterClose(t *testing.T) {
	connector := hangingConnector{make(chan struct{})}
	c := NewClient(connector)
	failed := make(chan error)
	go func() { failed <- c.Ping(context.Background()) }()
	<-connector.begun
	require.NoError(t, c.Close())
	assert.NotEmpty(t, fmt.Sprintf("%+v", &c.dialing))
	require.ErrorIs(t, <-failed, ErrClosed)
}

func TestTwoTracesShareEachHook(t *testing.T) {
	var all Trace
	fields := reflect.ValueOf(&all).Elem()
	for i := range fields.NumField() {
		fields.Field(i).Set(reflect.MakeFunc(fields.Field(i).Type(), func([]reflect.Value) []reflect.Value { return nil }))
	}
	joined := reflect.ValueOf(new(Trace).and(&all)).Elem()
	for i := range joined.NumField() {
		assert.False(t, joined.Field(i).IsNil(), joined.Type().Field(i).Name)
	}
}
