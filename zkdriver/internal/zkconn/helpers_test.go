package zkconn

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const bound = 30 * time.Second

func closed(t testing.TB, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(bound):
		t.Fatalf("not within %v: %s", bound, what)
	}
}

type noEvents struct{}

func (noEvents) Changed(string, Change) {}
func (noEvents) Disconnected()          {}
func (noEvents) Ended()                 {}
func (noEvents) Watching() bool         { return false }

func testConfig(hosts ...string) Config {
	return Config{
		Hosts: hosts, SessionTimeout: 10 * time.Second, ConnectTimeout: bound,
		HasNodes: func() bool { return false }, Events: noEvents{},
	}
}

func mustDial(t testing.TB, config Config) *Conn {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	c, err := Dial(ctx, config)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}
