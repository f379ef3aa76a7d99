package ensemble

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/zktest"
)

// A server whose accept queue is full neither accepts nor refuses clients,
// because the operating system drops their connection attempts.
func TestServerWithAFullAcceptQueueIsAClearErrorInTime(t *testing.T) {
	t.Parallel()
	server := zktest.Start(t, zktest.WithBacklog(4))
	end := server.FillAcceptQueue()
	c := open(t, dsn("/f?session_timeout=4s", server.Addr()))

	const timeLimit = 2 * time.Second
	ctx, cancel := context.WithTimeout(context.Background(), timeLimit)
	defer cancel()
	// Require only that Ping fails. It may time out during its first
	// attempt to connect, before there is an error that names the reason.
	err := c.Ping(ctx)
	t.Logf("ping: %v", err)
	require.Error(t, err)

	ctx, cancel = context.WithTimeout(context.Background(), timeLimit)
	defer cancel()
	began := time.Now()
	_, err = c.RWMutex("q").Lock(ctx)
	took := time.Since(began)
	t.Logf("after %v: %v", took.Round(time.Millisecond), err)
	require.ErrorIs(t, err, dlock.ErrTimeout)
	require.ErrorIs(t, err, driver.ErrUnavailable, "the error also says why")
	require.Contains(t, err.Error(), "q: timed out after ")
	require.Less(t, took, timeLimit+bound/2)

	end()
	l, err := c.RWMutex("q").Lock(within(t))
	require.NoError(t, err, "the same client gets the lock when the accept queue is empty again")
	require.NoError(t, l.Unlock())
	require.Equal(t, []string{"/f", "/f/q"}, server.Tree(t, "/"))
}

// Each client tries the servers in its own random order, so the test uses
// several clients.
func TestServerWithAFullAcceptQueueDoesNotDelayClientsOfOtherServers(t *testing.T) {
	t.Parallel()
	e := zktest.StartEnsemble(t, 3, zktest.WithBacklog(4))
	full := e.Follower(t)
	e.Servers[full].FillAcceptQueue()
	for i := range 6 {
		c := open(t, dsn("/f?session_timeout=4s", e.Addrs()...))
		began := time.Now()
		l, err := c.RWMutex(fmt.Sprint("q", i)).Lock(within(t))
		require.NoError(t, err)
		t.Logf("client %d had its lock after %v", i, time.Since(began).Round(time.Millisecond))
		require.NoError(t, l.Unlock())
	}
}
