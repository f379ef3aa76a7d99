package zkdriver

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

func FuzzTrailer(f *testing.F) {
	f.Add([]byte("data"), int64(7), int64(1700000000000))
	f.Add([]byte("\n#dlock token=1 created=2"), int64(0), int64(0))
	f.Add([]byte("x\n#dlock token=1 created=2\n#dlock token=3 created=4"), int64(1), int64(0))
	f.Add([]byte("\n#dlock token=-1 created=2"), int64(1<<62), int64(-1))
	f.Add([]byte("\n#dlock token=01 created=+2"), int64(1), int64(1))
	f.Add([]byte("\n#dlock token="), int64(1), int64(1))
	f.Add([]byte("x\n#dlock guarded"), int64(1), int64(1))
	f.Add([]byte("\n#dlock guarded "), int64(1), int64(1))
	f.Add([]byte("\n#dlock -1 created=-1"), int64(1), int64(1))
	f.Add([]byte("x\n#dlock token=5 created=6y"), int64(1), int64(1))
	f.Fuzz(func(t *testing.T, data []byte, token, created int64) {
		before := bytes.Clone(data)
		stored := withTrailer(data, false)
		require.LessOrEqual(t, len(stored), len(data)+len(trailer{}.text()))
		got, e, _ := splitTrailer(stored)
		require.Equal(t, data, got)
		require.Zero(t, e, "the data of a new node holds no token, because the node's Stat shows it")
		got, e, _ = splitTrailer(withTrailer(data, true))
		require.Equal(t, data, got)
		require.Equal(t, trailer{guarded: true}, e)

		want := trailer{token: max(token, 0), created: max(created, 0)}
		resealed := appendTrailer(data, want)
		got, e, marked := splitTrailer(resealed)
		require.True(t, marked)
		require.Equal(t, want, e)
		require.Equal(t, data, got)

		// Any client can create nodes, so their data can be anything.
		inner, e, marked := splitTrailer(data)
		require.True(t, bytes.HasPrefix(data, inner))
		if marked {
			require.Equal(t, data, appendTrailer(inner, e))
			require.False(t, e.token < 0 || e.created < 0)
		} else {
			require.Equal(t, data, inner)
			require.Zero(t, e)
		}
		require.Equal(t, before, data, "the caller's data was changed")
	})
}

// FuzzPath checks that paths are valid, and that splitPath inverts queuePath.
func FuzzPath(f *testing.F) {
	f.Add("", "stock/42", "web1-W-0000000007")
	f.Add("/locks", "zookeeper", "x")
	f.Add("/a/b", "\U0001F600", "..")
	f.Add("/", "a\u200bb", "a\x7f")
	f.Add("/a-0000000001", "orders-1234567890/x~/1234567890~", "x-0000000001")
	f.Fuzz(func(t *testing.T, chroot, queue, name string) {
		s := &settings{}
		if root, err := parseChroot(chroot); err == nil && strings.HasPrefix(chroot, "/") {
			s.chroot = root
		}
		if err := s.checkQueue(queue); err != nil {
			require.ErrorIs(t, err, driver.ErrBadName)
			return
		}
		require.NoError(t, driver.CheckQueue(queue), "a queue that the contract refuses was accepted")
		path := s.queuePath(queue)
		serverTakes(t, path)
		if err := checkName(name); err != nil {
			require.ErrorIs(t, err, driver.ErrBadName)
			return
		}
		full := path + "/" + name
		serverTakes(t, full)
		gotQueue, gotName, ok := s.splitPath(full)
		require.True(t, ok)
		require.Equal(t, queue, gotQueue)
		require.Equal(t, name, gotName)
	})
}

// FuzzSegment checks that segments have distinct node names, none of which
// looks like a contender.
func FuzzSegment(f *testing.F) {
	for _, s := range []string{"stock", "order-1234567890", "order-1234567890~", "1234567890~~", "~", "0000000001x~", "x-W-0000000001", strings.Repeat("9", 40), "1234567890", "job1732201234567~",
		"x-123456789\uff10"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		child := escapeSegment(s)
		_, contender := sequenceOf(child)
		require.False(t, contender, "%q", child)
		require.Equal(t, s, unescapeSegment(child))
		require.Contains(t, []string{s, s + "~"}, child, "names stay readable")
		if seq, contender := sequenceOf(s); contender {
			require.True(t, strings.HasSuffix(s, fmt.Sprintf("%010d", seq)), "%q", s)
			return
		}
		require.Equal(t, s, escapeSegment(unescapeSegment(s)), "unescaping and escaping the name of a node gives another name")
	})
}

// serverTakes repeats the checks of PathUtils.validatePath in the server.
func serverTakes(t *testing.T, path string) {
	t.Helper()
	require.True(t, strings.HasPrefix(path, "/") && !strings.HasSuffix(path, "/") && !strings.Contains(path, "//"), "%q", path)
	for _, s := range strings.Split(path, "/") {
		require.NotContains(t, []string{".", ".."}, s)
	}
	for _, c := range utf16.Encode([]rune(path)) {
		bad := c == 0 || c > 0 && c <= 0x1f || c >= 0x7f && c <= 0x9f || c >= 0xd800 && c <= 0xf8ff || c >= 0xfff0
		require.False(t, bad, "%q has %#x", path, c)
	}
}
