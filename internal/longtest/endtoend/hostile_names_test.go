package endtoend_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/recipes"
)

// requirePrintable rejects control, invisible and direction-changing
// characters, except those given.
func requirePrintable(t testing.TB, text string, also ...rune) {
	t.Helper()
	if !utf8.ValidString(text) {
		assert.Failf(t, "bytes that are no text", "%.2000q", text)
	}
	for i, r := range text {
		if !unicode.IsPrint(r) && !strings.ContainsRune(string(also), r) {
			assert.Failf(t, "a character that does not print", "%U at byte %d of %.2000q", r, i, text)
			return
		}
	}
}

const (
	override  = "\u202e" // right-to-left override
	invisible = "\u200b\u2060\ufeff"
	lines     = "\u2028\u2029"
)

var long = strings.Repeat("x", 300_000)

// unsequenced lists node names that ZooKeeper accepts but no contender uses.
var unsequenced = []string{
	"-R--1", "x-W-", "x-W-1", "x-W-000000001", "000000000", "lock", "%", "x-W-0000000001-", "...", "x-W-0000000001~", "0000000001~~",
	"x-W-00000000\uff10\uff11", "x-W-1000000000000000000x",
	override + "x", invisible, lines, "x-W-" + override + "000000001", "-R-0000000001" + invisible, long,
}

func TestANodeThatIsNoContenderBlocksNoWaiter(t *testing.T) {
	w := newFixture(t)
	w.made("q")
	for _, name := range unsequenced {
		w.plant("q", name, nil)
	}
	c := w.client("web1", "")
	m := c.RWMutex("q")
	for name, enter := range map[string]func(context.Context) (*dlock.Lock, error){
		"Lock": m.Lock, "RLock": m.RLock, "TryLock": m.TryLock, "TryRLock": m.TryRLock,
	} {
		l, err := enter(w.soon())
		require.NoError(t, err, name)
		queue, err := m.Queue(w.soon())
		require.NoError(t, err)
		require.Len(t, queue, 1, "only the holder")
		w.unlock(l)
	}
	lock := w.lock(c).granted()
	next := w.lock(c)
	next.waitsBehind(lock.Node())
	w.unlock(lock)
	w.unlock(next.granted())
}

func TestASequencedNodeOfAnUnknownKindCountsAsExclusive(t *testing.T) {
	w := newFixture(t)
	c := w.client("web1", "")
	for i, name := range []string{
		"x-0000000000", "-0000000000", "--0000000000", "-W-0000000000", "x-Q-0000000000", "x-r-0000000000", "x-R0-0000000000",
		override + "-R" + override + "-0000000000", "x" + invisible + "-0000000000", long + "-0000000000",
		// ZooKeeper appends ten digits to any prefix, even one that
		// ends in a digit.
		"0000000000", "_c_5f0c4a5d-7e9d-lock-0000000000", "_c_5f0c4a5d-7e9d__WRIT__0000000000", "_c_5f0c4a5d-7e9d__READ__0000000000",
		"5f0c4a5d7e9d__lock__0000000000", "5f0c4a5d7e9d__rlock__0000000000", "lock-0000000000", "x-R-20240000000000",
		"x-W-1000000000000000000", "x-W-" + strings.Repeat("9", 30) + "0000000000", strings.Repeat("0", 40), override + "0000000000",
	} {
		queue := fmt.Sprint("q", i)
		w.made(queue)
		w.plant(queue, name, nil)
		reader := w.contend(c, queue, dlock.Shared)
		reader.waitsBehind(name)
		_, err := c.RWMutex(queue).TryRLock(w.soon())
		require.ErrorIs(t, err, dlock.ErrLocked)
		w.remove(queue, name)
		w.unlock(reader.granted())
	}
}

// A node created by hand can have a number beyond ZooKeeper's 31-bit sequences.
func TestANodeBeyondTheEndOfTheSequenceBlocksNoNewContender(t *testing.T) {
	w := newFixture(t)
	w.made("q")
	for _, name := range []string{"x-W-2147483647", "-W--2147483648", "x-W-9999999999", "x-W-999999999999999999", strings.Repeat("9", 40)} {
		w.plant("q", name, nil)
	}
	c := w.client("web1", "")
	lock := w.lock(c).granted()
	next := w.rlock(c)
	next.waitsBehind(lock.Node())
	w.unlock(lock)
	w.unlock(next.granted())
	_, err := c.RWMutex("q").TryLock(w.soon())
	require.ErrorIs(t, err, dlock.ErrLocked, "TryLock does not wait, and another node is in the queue")
}

// Errors, logs, printed queues and trace events must escape control characters
// of names.
func TestControlCharactersOfANameReachNoTerminal(t *testing.T) {
	for _, host := range []string{
		"web1" + override + "1bew", invisible, "x" + lines + "dlock: all is well", "\u061c\u2066x\u2069", "\u00ad", "\u115f\u2800 \u00a0x", `"`, `\x1b[2J`, long,
	} {
		name := host + "-W-0000000000"
		w := newFixture(t)
		w.made("q")
		w.plant("q", name, []byte(`{"id":"1"}`))
		var logged sharedBuffer
		var traced []recipes.WaitingInfo
		trace := &recipes.Trace{Waiting: func(_ context.Context, i recipes.WaitingInfo) { traced = append(traced, i) }}
		both := slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
		c := w.client("web1", "", dlock.WithLogger(both), dlock.WithTrace(trace))
		m := c.RWMutex("q")
		var err error
		for limit := 300 * time.Millisecond; len(traced) == 0 && limit < bound; limit *= 2 {
			ctx, cancel := context.WithTimeout(context.Background(), limit)
			_, err = m.Lock(ctx)
			cancel()
			require.ErrorIs(t, err, dlock.ErrTimeout)
			requirePrintableError(t, err)
		}
		require.ErrorContains(t, err, "-W-0000000000", "the error names the node that the call waited for")
		require.NotEmpty(t, traced)
		require.Equal(t, name, traced[0].Predecessor, "a program gets the name as it is")
		for _, format := range []string{"%v", "%+v", "%s", "%#v"} {
			requirePrintable(t, fmt.Sprintf(format, traced[0]))
		}

		queue, err := m.Queue(w.soon())
		require.NoError(t, err)
		require.Equal(t, name, queue[0].Node, "a program gets the name as it is")
		for _, format := range []string{"%v", "%+v", "%s", "%q", "%#v"} {
			requirePrintable(t, fmt.Sprintf(format, queue[0]))
			requirePrintable(t, fmt.Sprintf(format, queue))
		}
		slog.New(slog.NewTextHandler(&logged, nil)).Info("x", "queue", queue, "first", queue[0], "behind", traced[0].Predecessor, "info", traced[0], "error", err)
		requirePrintable(t, logged.String(), '\n')
	}
}

type sharedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *sharedBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *sharedBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func requirePrintableError(t testing.TB, err error) {
	t.Helper()
	require.Error(t, err)
	var text, json bytes.Buffer
	slog.New(slog.NewTextHandler(&text, nil)).Error("failed", "error", err)
	slog.New(slog.NewJSONHandler(&json, nil)).Error("failed", "error", err)
	for _, s := range []string{err.Error(), fmt.Sprintf("%v", err), fmt.Sprintf("%+v", err), fmt.Sprintf("%q", err), text.String(), json.String()} {
		requirePrintable(t, strings.TrimSuffix(s, "\n"))
		require.Less(t, len(s), 20_000, "a long name is cut")
	}
}

// Any client that may create nodes can create one that others may not read.
func TestANodeThatMayNotBeReadIsNamedAndDoesNotHideTheOthers(t *testing.T) {
	w := newFixture(t)
	w.made("q")
	name := override + long + "-W-0000000000"
	_, err := w.raw.Create(w.path("q")+"/"+name, []byte("x"), 0, zk.DigestACL(zk.PermAll, "bob", "geheim"))
	require.NoError(t, err)
	c := w.client("web1", "")
	_, err = c.RWMutex("q").Lock(w.soon())
	require.ErrorIs(t, err, zk.ErrNoAuth)
	require.ErrorIs(t, err, fs.ErrPermission)
	require.NotErrorIs(t, err, dlock.ErrUnavailable)
	require.NotErrorIs(t, err, dlock.ErrTimeout)
	require.ErrorContains(t, err, "READ")
	requirePrintableError(t, err)

	polled := w.contend(c, "q", dlock.Exclusive, dlock.WithWait(recipes.Poll(20*time.Millisecond)))
	polled.waitsBehind(name)
	queue, err := c.RWMutex("q").Queue(w.soon())
	require.NoError(t, err)
	require.Len(t, queue, 2)
	require.True(t, queue[0].Holds)
	require.Empty(t, queue[0].Record)
	require.Equal(t, "endtoend.test", queue[1].Record.Program)
	w.remove("q", name)
	w.unlock(polled.granted())
}

func TestABadNameFromAUserIsQuotedAndCut(t *testing.T) {
	w := newFixture(t)
	c := w.client("web1", "")
	for _, name := range []string{"a\x1b[2Jb", "a\r\nb", "a\x00", "\xff\xfe", override, long, strings.Repeat("\x1b", 300_000), "../../x", "a/\u2028/b", "\x1b" + long} {
		for call, err := range callAll(w.soon(), c.RWMutex(name)) {
			require.True(t, errors.Is(err, dlock.ErrBadName), call)
			requirePrintableError(t, err)
		}
	}
}
