//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package exampledriver

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver/session"
)

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

// Whatever the state file contains, an update fails or adds just one node.
func FuzzState(f *testing.F) {
	for _, s := range []string{`{}`, `null`, `[]`, `{"Last":7,"Version":1,"Sessions":{},"Queues":{"q":{"Nodes":[{"Name":"x-W-0000000003"}]}}}`,
		`{"Sessions":null,"Queues":null}`, `{"Queues":{"q":null,"":{"Nodes":[{}]}}}`, `{"Sessions":{"../outside":true,"":true,"lock":false}}`,
		`{"Queues":{"q":{"Nodes":[{"Name":"\u001b-0000000001","Owner":"none"}]}}}`, `{"Queues":{"q":{"Nodes":[{"Name":"x-W-0000000009"},{"Name":"x-W-0000000008"}]}}}`,
		`{"Last":9223372036854775807}`, ``, `{"Last":999999999999999999}`, `{"Version":9223372036854775807}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		outside := filepath.Join(filepath.Dir(dir), "outside")
		require.NoError(t, os.WriteFile(outside, nil, 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "state.json"), text, 0o600))
		d := store{dir}
		added := session.Row{Name: "n-W-0000000000"}
		var before, after []session.Row
		err := d.update(t.Context(), func(st *state) error {
			q := st.Queues["q"]
			before, q.Nodes = slices.Clone(q.Nodes), append(q.Nodes, added)
			st.store("q", q)
			st.Sessions["me"] = true
			return nil
		})
		require.FileExists(t, outside, "the driver has removed a file outside of its directory")
		if err != nil {
			return
		}
		require.NoError(t, d.read(t.Context(), func(st *state) error {
			require.Contains(t, st.Sessions, "me")
			after = st.Queues["q"].Nodes
			return nil
		}))
		require.ElementsMatch(t, append(before, added), after)
	})
}
