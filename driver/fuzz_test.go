package driver_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

// printable deliberately shares no code with the functions under test.
func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool {
		return !unicode.IsPrint(r) || r == '\ufffd' || r == '\ufffc'
	})
}

func wantNameError(t *testing.T, err error, of string) {
	t.Helper()
	require.ErrorIs(t, err, driver.ErrBadName, "%q", of)
	shown := err.Error()
	require.True(t, utf8.ValidString(shown) && !strings.ContainsFunc(shown, func(r rune) bool { return !unicode.IsPrint(r) }),
		"the error contains a character that a terminal may interpret: %q", shown)
}

func FuzzCheckQueue(f *testing.F) {
	for _, s := range []string{"stock/42", "", "a//b", "/", ".", "a/../b", "web1-W-0000000007", "a\x1b[2J", "caf\u00e9", "\ufffd", "\xff", "a/b-0000000001/c",
		strings.Repeat("\u00e9", driver.MaxQueue/2), strings.Repeat("q", driver.MaxQueue+1)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, queue string) {
		want := queue != "" && len(queue) <= driver.MaxQueue && printable(queue)
		segments := strings.Split(queue, "/")
		for _, s := range segments {
			want = want && s != "" && s != "." && s != ".."
		}
		err := driver.CheckQueue(queue)
		require.Equal(t, want, err == nil, "%q: %v", queue, err)
		if err != nil {
			wantNameError(t, err, queue)
			return
		}
		for i := range segments {
			require.NoError(t, driver.CheckQueue(strings.Join(segments[:i+1], "/")))
			require.NoError(t, driver.CheckQueue(segments[i]))
		}
	})
}

func FuzzCheckPrefix(f *testing.F) {
	for _, s := range []string{"web1-W-", "-", "--", "", "a/b-", "a\n-", "%2F-R-", "web1", "web-0000000001-", strings.Repeat("p", driver.MaxPrefix) + "-"} {
		f.Add(s, int64(7))
	}
	f.Fuzz(func(t *testing.T, prefix string, seq int64) {
		want := len(prefix) >= 2 && len(prefix) <= driver.MaxPrefix && strings.HasSuffix(prefix, "-") && !strings.Contains(prefix, "/") && printable(prefix)
		err := driver.CheckPrefix(prefix)
		require.Equal(t, want, err == nil, "%q: %v", prefix, err)
		if err != nil {
			wantNameError(t, err, prefix)
			return
		}
		seq = max(seq, -seq, 0) % 1e18
		name := driver.FormatName(prefix, seq)
		require.Equal(t, fmt.Sprintf("%s%010d", prefix, seq), name)
		got, gotSeq, ok := driver.ParseName(name)
		require.True(t, ok)
		require.Equal(t, prefix, got)
		require.Equal(t, seq, gotSeq)
		require.NoError(t, driver.CheckQueue(name), "a queue may be named like a node")
	})
}

func FuzzNameOrder(f *testing.F) {
	f.Add("web1-W-", int64(7), int64(10))
	f.Add("a-", int64(9_999_999_999), int64(10_000_000_000))
	f.Fuzz(func(t *testing.T, prefix string, a, b int64) {
		a, b = max(a, -a, 0)%1e18, max(b, -b, 0)%1e18
		nameA, nameB := driver.FormatName(prefix, a), driver.FormatName(prefix, b)
		require.Equal(t, a == b, nameA == nameB)
		if len(nameA) == len(nameB) {
			require.Equal(t, cmp.Compare(a, b), strings.Compare(nameA, nameB))
		}
		require.GreaterOrEqual(t, len(nameA), len(prefix)+10)
		require.LessOrEqual(t, len(nameA), len(prefix)+18)
	})
}
