package endtoend_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
)

// hostileData is node data that no dlock client writes.
var hostileData = map[string]string{
	"nothing":           "",
	"binary":            "\x00\x01\x02\xff\xfe\x80",
	"a megabyte":        strings.Repeat("\xff", 1_000_000),
	"a megabyte of [":   strings.Repeat("[", 1_000_000),
	"a megabyte of {":   strings.Repeat(`{"id":`, 160_000),
	"deep, and closed":  strings.Repeat("[", 400_000) + strings.Repeat("]", 400_000),
	"deep in a field":   `{"data":` + strings.Repeat("[", 5_000) + strings.Repeat("]", 5_000) + `}`,
	"no object":         `"x"`,
	"null":              `null`,
	"a list":            `[{"id":"1"}]`,
	"half":              `{"id":"1"`,
	"two":               `{"id":"1"}{"id":"2"}`,
	"a number too big":  `{"pid":99999999999999999999999}`,
	"a fraction":        `{"pid":1.5}`,
	"a huge exponent":   `{"pid":1e999999999}`,
	"a wrong type":      `{"pid":"x","id":7,"since":true,"data":{},"bytes":1}`,
	"no time":           `{"since":"yesterday"}`,
	"a late time":       `{"since":"9999-12-31T23:59:59.999999999+23:59"}`,
	"an impossible one": `{"since":"10000-01-01T00:00:00Z"}`,
	"a field twice":     `{"id":"1","id":"\u001b[2J","ID":"3","pid":1,"pid":2}`,
	"escapes":           `{"program":"\u001b]0;owned\u0007\u009b2J","data":"\r\nWARN x\u202e\u2028\u0000\ud800"}`,
	"raw escapes":       "{\"program\":\"\x1b[2J\x9b\",\"data\":\"\xff\u202e\"}",
	"bad base64":        `{"bytes":"****"}`,
	"binary in base64":  `{"bytes":"GzJK/wD+"}`,
	"much data":         `{"data":"` + strings.Repeat("x", 900_000) + `"}`,
	"a forged token":    "{}\n#dlock token=9223372036854775807 created=9223372036854775807",
	"a negative token":  "{}\n#dlock token=-1 created=-1",
	"a token too big":   "{}\n#dlock token=99999999999999999999 created=0",
	"many tokens":       strings.Repeat("\n#dlock token=1 created=1", 30_000),
}

// Hostile data of a node or queue may cost a request or two at most.
func TestHostileDataChangesNothing(t *testing.T) {
	w := newFixture(t)
	c := w.client("web1", "")
	for name, data := range hostileData {
		t.Run(name, func(t *testing.T) {
			w := &fixture{t, w.server, w.root, w.raw}
			queue := strings.ReplaceAll(name, " ", "-")
			_, err := w.raw.Create(w.path(queue), []byte(data), 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
			w.plant(queue, "x-W-0000000000", []byte(data))
			k := w.contend(c, queue, dlock.Exclusive)
			k.waitsBehind("x-W-0000000000")

			seen, err := c.RWMutex(queue).Queue(w.soon())
			require.NoError(t, err)
			require.Len(t, seen, 2)
			require.True(t, seen[0].Holds)
			require.False(t, seen[1].Holds)
			require.Equal(t, "endtoend.test", seen[1].Record.Program)
			var text bytes.Buffer
			slog.New(slog.NewTextHandler(&text, nil)).Info("x", "contender", seen[0], "record", seen[0].Record)
			requirePrintable(t, text.String(), '\n')
			for _, format := range []string{"%v", "%+v", "%s", "%#v"} {
				requirePrintable(t, fmt.Sprintf(format, seen[0]))
				requirePrintable(t, fmt.Sprintf(format, seen[0].Record))
				if format != "%#v" {
					require.Less(t, len(fmt.Sprintf(format, seen)), 50_000)
				}
			}
			w.remove(queue, "x-W-0000000000")
			lock := k.granted()
			reader := w.contend(c, queue, dlock.Shared)
			reader.waitsBehind(lock.Node())
			require.NoError(t, lock.Downgrade(w.soon()))
			w.unlock(reader.granted(), lock)
			kept, _, err := w.raw.Get(w.path(queue))
			require.NoError(t, err)
			require.True(t, data == string(kept))
		})
	}
}

// Forged data may cost a holder its lock, but must not admit a second holder.
func TestForgedDataInAHoldersNodeGrantsNothing(t *testing.T) {
	for name, data := range hostileData {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			holder, other := w.client("web1", "&handover=list"), w.client("web2", "")
			lock := w.lock(holder).granted()
			_, err := w.raw.Set(w.path("q")+"/"+lock.Node(), []byte(data), -1)
			require.NoError(t, err)
			k := w.lock(other)
			k.waitsBehind(lock.Node())
			_, err = other.RWMutex("q").TryRLock(w.soon())
			require.ErrorIs(t, err, dlock.ErrLocked)
			_ = lock.Unlock()
			_ = holder.Close() // the node is gone even if Close fails
			next := k.granted()
			require.Greater(t, next.Token(), lock.Token())
			w.unlock(next)
		})
	}
}

// Queue must read the records one by one and drop those that it cannot parse.
func TestAQueueFullOfJunkCostsNoMemoryWithoutBound(t *testing.T) {
	w := newFixture(t)
	w.made("q")
	const n = 40
	for i := range n {
		w.plant("q", fmt.Sprintf("x-W-%010d", i), bytes.Repeat([]byte{'['}, 1_000_000))
	}
	c := w.client("web1", "")
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	seen, err := c.RWMutex("q").Queue(w.soon())
	require.NoError(t, err)
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Len(t, seen, n)
	require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(10<<20), "of 40 MB")
	runtime.KeepAlive(seen)
}
