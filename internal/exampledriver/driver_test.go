//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package exampledriver

import (
	"context"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/leakcheck"
)

func TestBadDSNsAreRefused(t *testing.T) {
	for _, dsn := range []string{"", "?session_timeout=10s", "/d?timeout=10s", "/d?session_timeout=ten", "/d?session_timeout=1ms", "/d?%zz"} {
		_, err := dlock.Open("file", dsn)
		assert.ErrorContains(t, err, "exampledriver: dsn", dsn)
	}
}

func TestAMissingDirectoryIsUnavailable(t *testing.T) {
	client, err := dlock.Open("file", t.TempDir()+"/missing")
	require.NoError(t, err)
	defer client.Close()
	assert.ErrorIs(t, client.Ping(context.Background()), dlock.ErrUnavailable)
}

func TestMain(m *testing.M) { os.Exit(leakcheck.After(m.Run())) }

func TestAnOlderHeartbeatDoesNotSetTheDeadlineBack(t *testing.T) {
	c, err := Driver{}.OpenConnector(directory(t) + "?session_timeout=1h")
	require.NoError(t, err)
	m := c.(connector).newMember()
	connected, err := c.(connector).begin(t.Context(), m, m)
	require.NoError(t, err)
	defer connected.Close()

	var mu sync.Mutex
	var ends []time.Time // deadlines of the session, in heartbeat order
	chtimes = func(name string, access, modified time.Time) error {
		runtime.Gosched()
		mu.Lock()
		defer mu.Unlock()
		ends = append(ends, modified)
		return os.Chtimes(name, access, modified)
	}
	defer func() { chtimes = os.Chtimes }()
	var beats sync.WaitGroup
	for range 8 {
		beats.Go(func() {
			for range 500 {
				_, err := m.Beat(t.Context())
				assert.NoError(t, err)
			}
		})
	}
	beats.Wait()
	assert.Len(t, ends, 4000)
	assert.True(t, slices.IsSortedFunc(ends, time.Time.Compare), "a heartbeat has stored an older instant than the one before")
}
