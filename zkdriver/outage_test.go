package zkdriver

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/zktest"
)

func TestTheErrorOfALostSessionSaysWhy(t *testing.T) {
	t.Parallel()
	server := zktest.Start(t)
	s := mustConnect(t, "zk://"+server.Addr()+"/?session_timeout=4s")
	server.Kill()
	<-s.Done()
	require.ErrorContains(t, s.Err(), "the last failure: ")
	require.ErrorContains(t, s.Err(), "connection refused")

	b := newFixture(t, "session_timeout=20s")
	require.NoError(t, b.expire())
	closed(t, "the session is over", b.Done())
	require.ErrorContains(t, b.Err(), "the server has let the session expire")
}

func TestCallsThatGiveUpInAnOutageSendNothingLater(t *testing.T) {
	b := newFixture(t, "session_timeout=1m")
	p := b.mustCreate("q", "h-W-", "warm")
	b.proxy.Refuse()
	b.proxy.DropConnections()
	eventually(t, "the connection is broken", func() bool {
		b.watches.mu.Lock()
		defer b.watches.mu.Unlock()
		return b.watches.breaks > 0
	})
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	var calls sync.WaitGroup
	giveUp := func(what string, call func() error) {
		calls.Go(func() { assert.ErrorIs(t, call(), context.DeadlineExceeded, what) })
	}
	for i := range 200 {
		giveUp("create", func() error { _, err := create(ctx, b, "q", "h-W-", fmt.Append(nil, i)); return err })
		giveUp("watch", func() error { _, err := watchPlace(ctx, b, fmt.Sprint("q", i), p); return err })
		giveUp("delete", func() error { return b.Delete(ctx, "q", p, driver.Released) })
	}
	calls.Wait()
	b.proxy.Heal()
	require.Equal(t, p.Seq+1, b.mustCreate("q", "h-W-", "next").Seq, "creates were sent after their callers had given up")
	require.Len(t, b.nodes("q"), 2)
}
