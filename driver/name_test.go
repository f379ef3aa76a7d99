package driver_test

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

func TestFormatNameHasAtLeastTenDigits(t *testing.T) {
	for _, c := range []struct {
		prefix string
		seq    int64
		want   string
	}{
		{"web1-W-", 7, "web1-W-0000000007"},
		{"web1-R-", 0, "web1-R-0000000000"},
		{"a-", 9_999_999_999, "a-9999999999"},
		{"a-", 10_000_000_000, "a-10000000000"},
		{"a-", 999_999_999_999_999_999, "a-999999999999999999"},
		{strings.Repeat("h", 200) + "-W-", 1, strings.Repeat("h", 200) + "-W-0000000001"},
	} {
		assert.Equal(t, c.want, driver.FormatName(c.prefix, c.seq))
	}
}

func TestParseNameReadsFromTheRight(t *testing.T) {
	for _, c := range []struct {
		name, prefix string
		seq          int64
	}{
		{"web1-W-0000000007", "web1-W-", 7},
		{"web-1-R-0000000001-W-0000000007", "web-1-R-0000000001-W-", 7},
		{"-0000000007", "-", 7},
		{"x-000000000000000012", "x-", 12},
		{"x-999999999999999999", "x-", 999_999_999_999_999_999},
	} {
		prefix, seq, ok := driver.ParseName(c.name)
		assert.True(t, ok, c.name)
		assert.Equal(t, c.prefix, prefix, c.name)
		assert.Equal(t, c.seq, seq, c.name)
	}
}

func TestParseNameRefusesNamesWithoutASequence(t *testing.T) {
	for _, name := range []string{
		"", "README", "tmp-x", "web1-W-", "web1-W-7", "web1-W-000000007",
		"web1-W0000000007", "0000000007", "web1-W-0000000007x", "web1-W-00000000-7",
		"x-1000000000000000000", "web1-W--2147483648x", "x-００００００００００",
	} {
		_, _, ok := driver.ParseName(name)
		assert.False(t, ok, name)
	}
}

var grammar = regexp.MustCompile(`(?s)^(.*-)([0-9]{10,18})$`)

func FuzzName(f *testing.F) {
	for _, s := range []string{"web1-W-0000000007", "a-R-9999999999", "-0000000000", "x-1000000000000000000", "README", "a\x00-0000000001"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		prefix, seq, ok := driver.ParseName(name)
		m := grammar.FindStringSubmatch(name)
		require.Equal(t, m != nil, ok, "%q", name)
		if !ok {
			return
		}
		want, err := strconv.ParseInt(m[2], 10, 64)
		require.NoError(t, err)
		require.Equal(t, m[1], prefix)
		require.Equal(t, want, seq)
		again, seqAgain, ok := driver.ParseName(driver.FormatName(prefix, seq))
		require.True(t, ok)
		require.Equal(t, prefix, again)
		require.Equal(t, seq, seqAgain)
	})
}

func TestCheckQueue(t *testing.T) {
	for _, good := range []string{
		"stock", "stock/42", "a.b/c d/é", "...", "x-000000001", strings.Repeat("q", driver.MaxQueue),
		"order-1234567890", "stock/a-W-0000000001", "a-0000000001/b", "1234567890", "order-1234567890~",
	} {
		assert.NoError(t, driver.CheckQueue(good), good)
	}
	for bad, says := range map[string]string{
		"":                       "empty",
		"/stock":                 "empty segment",
		"stock/":                 "empty segment",
		"a//b":                   "empty segment",
		".":                      `segment "."`,
		"a/../b":                 `segment ".."`,
		"a\nb":                   "unprintable character at byte 1",
		"a\x00":                  "unprintable",
		"a\u202eb":               "unprintable",
		"a\xffb":                 "unprintable",
		"a\ufffdb":               "unprintable",
		strings.Repeat("q", 513): "longer than 512",
	} {
		err := driver.CheckQueue(bad)
		require.ErrorIs(t, err, driver.ErrBadName, "%q", bad)
		assert.ErrorContains(t, err, says)
	}
}

func TestCheckPrefix(t *testing.T) {
	for _, good := range []string{"web1-W-", "a-", "%2F-R-", strings.Repeat("h", driver.MaxPrefix-1) + "-"} {
		assert.NoError(t, driver.CheckPrefix(good), good)
	}
	for _, bad := range []string{"", "-", "web1", "a/b-", "../x-", "a\x1b[31m-", strings.Repeat("h", driver.MaxPrefix) + "-"} {
		assert.ErrorIs(t, driver.CheckPrefix(bad), driver.ErrBadName, "%q", bad)
	}
}
