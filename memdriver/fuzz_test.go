package memdriver

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

// FuzzDSN never passes the store's name, because named stores stay in memory
// forever.
func FuzzDSN(f *testing.F) {
	for _, s := range []string{"", "?session_timeout=5s", "stock?session_timeout=1h2m3s", "?session_timeout=1ms", "zk://h", "?%zz", "?a;b", "?session_timeout=5s&session_timeout=5s",
		"?session_timeout=9223372036854775807ns", "?session%5Ftimeout=10s", "?session_timeout=%31s"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		name, query, _ := strings.Cut(dsn, "?")
		if !strings.Contains(name, "://") {
			name = ""
		}
		opened, err := Driver{}.OpenConnector(name + "?" + query)
		if err != nil {
			require.Nil(t, opened)
			require.ErrorContains(t, err, "mem: ")
			return
		}
		c := opened.(connector)
		require.Empty(t, name)
		require.GreaterOrEqual(t, c.timeout, minSessionTimeout)
		again, err := Driver{}.OpenConnector("?session_timeout=" + url.QueryEscape(c.timeout.String()))
		require.NoError(t, err)
		require.Equal(t, c.timeout, again.(connector).timeout)
		params, err := url.ParseQuery(query)
		require.NoError(t, err)
		want := defaultSessionTimeout
		if len(params) > 0 {
			want, err = time.ParseDuration(params.Get("session_timeout"))
			require.NoError(t, err)
			require.Len(t, params, 1)
		}
		require.Equal(t, want, c.timeout)
	})
}

// The queue must stay in order and include the node if its name is valid.
func FuzzForeignNode(f *testing.F) {
	for _, s := range []string{"readme", "x-0000000000", "x-0000000005", "x-999999999999999999", "", "a/b-0000000001", "\x1b-0000000007", "web1-W-0000000001"} {
		f.Add("q", s, []byte("x"))
	}
	f.Add("a//b", "x", []byte(nil))
	f.Fuzz(func(t *testing.T, queue, name string, data []byte) {
		st := New()
		s, err := st.Connect(t.Context())
		require.NoError(t, err)
		defer s.Close()
		if st.Faults().PutNode(queue, name, data) != nil {
			require.Zero(t, st.Stats().Nodes)
			return
		}
		_, seq, sequenced := driver.ParseName(name)
		first, err := s.List(t.Context(), queue)
		require.NoError(t, err)
		if sequenced {
			require.Equal(t, name, first[0].Name)
			require.Equal(t, seq, first[0].Seq)
		} else {
			require.Empty(t, first)
		}
		info, err := driver.Inspect(s).Read(t.Context(), queue, name)
		require.NoError(t, err)
		require.Equal(t, string(data), string(info.Data))
		require.Empty(t, info.Owner)
		j, err := s.Create(t.Context(), queue, driver.NodeSpec{Prefix: "web1-W-"})
		if err != nil {
			require.ErrorIs(t, err, driver.ErrUnavailable, "the sequence has come to its end")
			return
		}
		require.Equal(t, !sequenced, j.Alone())
		require.Equal(t, first, j.Ahead)
		require.Greater(t, j.Token, info.Token)
		after, err := s.List(t.Context(), queue)
		require.NoError(t, err)
		require.Equal(t, append(first, j.Node), after)
	})
}
