package sqltest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqlstore"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// DeadSessions configures [LockedRows] for a driver.
type DeadSessions struct {
	Connector driver.Connector
	Timeout   time.Duration
	// CutOff disconnects a session of the connector from the server until heal
	// is called.
	CutOff func(s driver.Session) (heal func())
	// Lock locks the rows of the queue "locked" until free is called, as an
	// operator's transaction might.
	Lock func() (free func())
	// Session unwraps a session that the connector has returned.
	Session func(s driver.Session) *session.Session
}

// LockedRows checks that locked rows of one dead session don't affect other
// sessions. The locks of a second dead session must become free at once. The
// first session keeps all of its locks until its rows are unlocked.
func LockedRows(t *testing.T, d DeadSessions) {
	within, cancel := context.WithTimeout(t.Context(), 20*d.Timeout)
	defer cancel()
	client := dlock.NewClient(d.Connector)
	defer client.Close()
	nodes := func(queue string) int {
		t.Helper()
		info, err := client.RWMutex(queue).Queue(within)
		require.NoError(t, err)
		return len(info)
	}
	first, second := connect(t, d.Connector, "locked", "first"), connect(t, d.Connector, "second")
	free := d.Lock()
	defer free()
	heal := d.CutOff(first)
	defer heal()
	<-first.Done() // so that the first session's deadline is earlier
	defer d.CutOff(second)()

	l, err := client.RWMutex("second").Lock(within)
	require.NoError(t, err, "the lock of the second session")
	Unlock(t, l)
	if a, b := nodes("locked"), nodes("first"); a != 1 || b != 1 {
		t.Errorf("the first session has %d and %d nodes while its rows are locked", a, b)
	}
	free()
	for _, queue := range []string{"locked", "first"} {
		if l, err = client.RWMutex(queue).Lock(within); err != nil {
			t.Fatalf("the lock %q of the first session: %v", queue, err)
		}
		Unlock(t, l)
	}
	heal()
	inner := d.Session(first)
	for err = driver.ErrUnavailable; errors.Is(err, driver.ErrUnavailable) && within.Err() == nil; {
		_, err = inner.Store().Beat(within)
	}
	assert.ErrorIs(t, err, sqlstore.ErrUnknownSession)
}

func connect(t *testing.T, c driver.Connector, queues ...string) driver.Session {
	t.Helper()
	s, err := c.Connect(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	for _, queue := range queues {
		_, err := s.Create(t.Context(), queue, driver.NodeSpec{Prefix: "a-W-", Data: []byte("x")})
		require.NoError(t, err)
	}
	return s
}
