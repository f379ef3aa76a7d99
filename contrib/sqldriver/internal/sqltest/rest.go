package sqltest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
)

// ConnectionsAtRest checks that, after a burst of calls, clients close all
// connections but one, although each holds a lock or waits for it. The function
// open returns a new client, with a session timeout of a few seconds. The
// function count returns how many connections all clients have to the server.
func ConnectionsAtRest(t *testing.T, open func() *dlock.Client, count func() int) {
	const clients = 6
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	m := open().RWMutex("q")
	held := Lock(t, m)
	defer Unlock(t, held)
	for range clients - 1 {
		waiter := open().RWMutex("q")
		var burst sync.WaitGroup
		for range 4 {
			burst.Go(func() { _, _ = waiter.Queue(ctx) })
		}
		burst.Wait()
		go waiter.Lock(ctx)
	}
	queued := 0
	for end := time.Now().Add(40 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if queued < clients {
			nodes, err := m.Queue(ctx)
			require.NoError(t, err)
			queued = len(nodes)
		} else if count() <= clients {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d of %d clients are in the queue, with %d connections", queued, clients, count())
		}
	}
}
