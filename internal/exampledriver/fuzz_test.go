//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package exampledriver

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

// FuzzDSN: what is taken has a directory and a timeout that makes sense; no error repeats what was given.
func FuzzDSN(f *testing.F) {
	for _, s := range []string{"/d", "/d?session_timeout=10s", "?session_timeout=10s", "/d?session_timeout=1ms", "/d?x=y", "/d?%zz", "/d?session_timeout=1s&session_timeout=1h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		opened, err := Driver{}.OpenConnector(dsn)
		if err != nil {
			require.Nil(t, opened)
			require.ErrorContains(t, err, "exampledriver: dsn: ")
			dir, query, _ := strings.Cut(dsn, "?")
			if len(dir) > 20 && !strings.Contains(query, dir) {
				require.NotContains(t, err.Error(), dir)
			}
			return
		}
		c := opened.(connector)
		require.NotEmpty(t, c.store.dir)
		require.True(t, strings.HasPrefix(dsn, c.store.dir))
		require.GreaterOrEqual(t, c.timeout, 100*time.Millisecond)
	})
}

// FuzzState: a state that anybody may have written is refused, or served as any other: a new node
// gets behind what is listed, and goes again.
func FuzzState(f *testing.F) {
	for _, s := range []string{`{}`, `null`, `[]`, `{"last":7,"version":1,"sessions":{},"queues":{"q":[{"name":"x-W-0000000003","seq":3}]}}`,
		`{"sessions":null,"queues":null}`, `{"queues":{"q":null,"":[{}]}}`, `{"sessions":{"../../x":1,"":5,"lock":0}}`,
		`{"queues":{"q":[{"name":"\u001b-0000000001","owner":"nobody"}]}}`, `{"last":9223372036854775807}`, ``, `{"last":999999999999999999}`, `{"version":9223372036854775807}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		outside := filepath.Join(filepath.Dir(dir), "outside")
		require.NoError(t, os.WriteFile(outside, nil, 0o600))
		old := time.Unix(0, 0)
		require.NoError(t, os.Chtimes(outside, old, old))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "state.json"), text, 0o600))

		d := store{dir}
		st := new(state)
		var p driver.Node
		var before []driver.Node
		err := d.update(context.Background(), func(s *state) error {
			before = contenders(s.Queues["q"])
			s.Last++
			p = driver.Node{Name: "n-W-0000000000", Seq: s.Last}
			s.Queues["q"] = append(s.Queues["q"], node{Name: p.Name, Seq: p.Seq})
			s.Sessions["me"] = time.Hour
			return nil
		})
		_, statErr := os.Stat(outside)
		require.NoError(t, statErr, "a session's name led out of the directory")
		if err != nil {
			return
		}
		st, err = d.read()
		require.NoError(t, err)
		require.Equal(t, append(before, p), contenders(st.Queues["q"]))
		b, err := json.Marshal(st)
		require.NoError(t, err)
		require.True(t, json.Valid(b))
	})
}
