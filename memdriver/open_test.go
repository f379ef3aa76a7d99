package memdriver_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/memdriver"
)

func connector(t *testing.T, dsn string) driver.Connector {
	t.Helper()
	c, err := memdriver.Driver{}.OpenConnector(dsn)
	require.NoError(t, err)
	return c
}

func TestSameNameIsTheSameStore(t *testing.T) {
	name := t.Name()
	create(t, connect(t, connector(t, name)))
	require.Len(t, list(t, connect(t, connector(t, name+"?session_timeout=5s"))), 1)
	require.Same(t, memdriver.Open(name), memdriver.Open(name))
	require.Equal(t, 1, memdriver.Open(name).Stats().Nodes)
	require.Empty(t, list(t, connect(t, connector(t, name+"2"))))
}

func TestEmptyNameIsANewStore(t *testing.T) {
	for _, dsn := range []string{"", "?session_timeout=5s"} {
		create(t, connect(t, connector(t, dsn)))
		require.Empty(t, list(t, connect(t, connector(t, dsn))))
	}
	require.NotSame(t, memdriver.Open(""), memdriver.Open(""))
}

func TestSessionTimeoutBelongsToTheConnector(t *testing.T) {
	inVirtualTime(t, func(t *testing.T) {
		for dsn, term := range map[string]time.Duration{"": 7500 * time.Millisecond, "?session_timeout=4s": 3 * time.Second} {
			st := memdriver.New()
			c := memdriver.ConnectorOf(t, st, dsn)
			s := connect(t, c)
			st.Faults().CutOff(s)
			start := time.Now()
			<-s.Done()
			require.Equal(t, term, time.Since(start), "lease of a session of %q", dsn)
		}
	})
}

func TestOptionsOutOfRangePanic(t *testing.T) {
	require.Panics(t, func() { memdriver.WithSessionTimeout(0) })
	require.Panics(t, func() { memdriver.WithSequenceStart(-1) })
	require.Panics(t, func() { memdriver.WithSequenceStart(1e18) })
	require.Panics(t, func() { memdriver.WithSequenceLimit(0) })
	require.NotPanics(t, func() { memdriver.WithSequenceLimit(1) })
}

func TestDSNErrorNamesThePartAndNotThePassword(t *testing.T) {
	connector(t, "x?")
	testenv.RefuseDSNs(t, memdriver.Driver{}, "mem: dsn: ", "geheim", map[string]string{
		"x?colour=red":                            `"colour" is not known`,
		"x?session_timeout=":                      "parameter session_timeout: not a duration",
		"x?session_timeout=ten":                   "parameter session_timeout: not a duration",
		"x?session_timeout=1ms":                   "parameter session_timeout: not a duration from 10ms to ",
		"x?session_timeout=-5s":                   "parameter session_timeout: not a duration",
		"x?session_timeout":                       "parameter session_timeout has no value",
		"x?%zz=1":                                 "parameter 1 is not known",
		"x?session_timeout=5s&y=":                 `"y" is not known`,
		"x?session_timeout=5s&session_timeout=6s": "parameter session_timeout is there twice",

		"zk://alice:geheim@h/locks":          "",
		"alice:geheim@h?colour=red":          "",
		"alice:geheim@h?session_timeout=ten": "",
		"alice@h?%zz=geheim":                 "",
		"h?session_timeout=geheim":           "",
	})
}

func TestConnectHonoursItsContext(t *testing.T) {
	st := memdriver.New()
	ctx, cancel := context.WithCancel(background)
	s, err := st.Connect(ctx)
	require.NoError(t, err)
	cancel()
	_, err = st.Connect(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 1, st.Stats().Sessions)
	_, err = s.List(background, queue)
	require.NoError(t, err, "ending the context of Connect ended the session")
	require.NoError(t, s.Close())
}
