package recipes

import (
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

var (
	aReader = regexp.MustCompile(`-R-([0-9]{10,18})$`)
	ofUnits = regexp.MustCompile(`-[SH]([1-9][0-9]{0,6})of([1-9][0-9]{0,6})-([0-9]{10,18})$`)
)

// FuzzMode compares isReader and unitsOf with the regular expressions above.
func FuzzMode(f *testing.F) {
	for name, seq := range map[string]int64{
		"web1-R-0000000007": 7, "web1-W-0000000007": 7, "x-0000000000": 0, "-R-0000000000": 0, "R-0000000000": 0, "a-R-0000000001-W-0000000007": 7,
		"README": 0, "web1-R-000000000000000000": 0, "web1-S2of5-0000000007": 7, "-H1of1000000-0000000000": 0, "a-R-\x000000000001": 1, "job-R-20240000000007": 7, "u__READ__0000000003": 3,
		"a-W-0000000001-R-0000000007": 7, "other-X-0000000000": 0, "web1-r-0000000007": 7, "web1-R-99999999999": 99999999999, "web1-R-0000000007-0000000008": 8,
		"web1-\x1b[31m-R-0000000000007": 7, "tmp-x": 7, "web1-R-": 7, "web1-R-7": 7, "0001__READ__0000000007": 7, "lock-0000000007": 7,
	} {
		f.Add(name, seq)
	}
	f.Fuzz(func(t *testing.T, name string, seq int64) {
		seq = max(seq, -seq, 0) % 1e18
		want := Exclusive
		inName := func(digits string) bool {
			return strings.TrimLeft(digits, "0") == strings.TrimLeft(strconv.FormatInt(seq, 10), "0")
		}
		if m := aReader.FindStringSubmatch(name); m != nil && inName(m[1]) {
			want = Shared
		}
		if m := ofUnits.FindStringSubmatch(name); m != nil && inName(m[3]) && fmt.Sprintf("%7s", m[1]) <= fmt.Sprintf("%7s", m[2]) && fmt.Sprintf("%7s", m[2]) <= "1000000" {
			want = Shared
		}
		require.Equal(t, want, wantOf(driver.Node{Name: name, Seq: seq}).mode(), "%q", name)
	})
}

// FuzzHostnameEncoding checks that only shortened names can collide, because
// all others decode to the original.
func FuzzHostnameEncoding(f *testing.F) {
	for _, s := range []string{"", "unknown", "web1", "a/b", "%", "%41", "\x00\xff", strings.Repeat("/", 70), strings.Repeat("h", 199) + "/"} {
		f.Add(s)
	}
	plain := regexp.MustCompile(`^([A-Za-z0-9._-]|%[0-9A-F]{2})*$`)
	f.Fuzz(func(t *testing.T, name string) {
		encoded := encodeHostname(name)
		require.Regexp(t, plain, encoded)
		require.LessOrEqual(t, len(encoded), maxHostname)
		require.NotEmpty(t, encoded)
		decoded, err := url.PathUnescape(encoded)
		require.NoError(t, err)
		if name == "" {
			require.Equal(t, unknownHostname, encoded)
			return
		}
		require.True(t, strings.HasPrefix(name, decoded), "%q was read back as %q", name, decoded)
		if decoded != name {
			require.Greater(t, len(encoded), maxHostname-3, "%q was cut although there was room", name)
		}
	})
}

func FuzzRecordOfData(f *testing.F) {
	f.Add([]byte("order 42"), int64(0))
	f.Add([]byte("\xff\x00\x1b"), int64(1<<40))
	f.Add([]byte(`</script>"\u2028`), int64(-1))
	f.Fuzz(func(t *testing.T, data []byte, nanoseconds int64) {
		since := time.Unix(0, nanoseconds)
		b := newRecord(since, recordTail(data))
		require.True(t, json.Valid(b), "%q", b)
		require.True(t, utf8.Valid(b), "%q", b)
		r := parseRecord(b)
		if len(b) > maxRecord {
			require.Equal(t, Record{}, r)
			return
		}
		require.Len(t, r.ID, 32)
		require.NotEqual(t, r.ID, parseRecord(newRecord(since, recordTail(data))).ID)
		require.NotZero(t, r.PID)
		require.NotEmpty(t, r.Program)
		require.True(t, since.Equal(r.Since))
		require.Equal(t, string(data), r.Data+string(r.Bytes))
		require.True(t, r.Data == "" || r.Bytes == nil)
	})
}

func FuzzHostileRecord(f *testing.F) {
	f.Add(newRecord(time.Unix(0, 0), recordTail([]byte("x"))))
	for _, s := range []string{`{"pid":"x"}`, `{"pid":1e99}`, `null`, `[]`, `{"since":"9999-12-31T23:59:59Z"}`, `{"bytes":"!"}`, `{"ID":"a","id":"b"}`, "\x1b[2J", strings.Repeat("[", 20000)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := parseRecord(data)
		if !json.Valid(data) {
			require.Equal(t, Record{}, r, "data that is no JSON gives an empty record")
			return
		}
		b, err := json.Marshal(r)
		require.NoError(t, err)
		if len(b) <= maxRecord {
			again := parseRecord(b)
			require.True(t, r.Since.Equal(again.Since))
			again.Since, r.Since = time.Time{}, time.Time{}
			if len(r.Bytes) == 0 {
				r.Bytes = nil
			}
			require.Equal(t, r, again)
		}
	})
}
