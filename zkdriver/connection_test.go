package zkdriver

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/doctortest"
	"github.com/dlock-go/dlock/internal/zktest"
)

func TestHostThatHangsInTheHandshakeDoesNotCostTheSession(t *testing.T) {
	t.Parallel()
	server := zktest.Shared(t)
	p := zktest.NewProxy(t, server.Addr())
	silent := doctortest.Listen(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	hosts := p.Addr() + "," + silent + server.Chroot(t)
	lives(t, 4*time.Second, func(timeout time.Duration) error {
		s := mustConnect(t, "zk://"+hosts+"?session_timeout="+timeout.String())
		id := s.conn.SessionID()
		if _, err := create(within(t), s, "q", "h-W-", []byte(timeout.String())); err != nil {
			return err
		}
		for range 6 {
			p.DropConnections()
			eventually(t, "another connection", func() bool {
				_, err := s.List(within(t), "q")
				return err == nil || s.Err() != nil
			})
			require.Equal(t, id, s.conn.SessionID())
		}
		return s.Err()
	})
}

func TestServersThatDropConnectionsAreNotOverloaded(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	count := 0
	addr := doctortest.Listen(t, func(net.Conn) {
		mu.Lock()
		count++
		mu.Unlock()
	})
	connect := func(seconds int) (connections int) {
		mu.Lock()
		count = 0
		mu.Unlock()
		_, err := dsnConnect(t, fmt.Sprintf("zk://%s,%s,%s?connect_timeout=%ds", addr, addr, addr, seconds))
		require.ErrorIs(t, err, driver.ErrUnavailable)
		require.ErrorContains(t, err, "handshake")
		require.ErrorContains(t, err, addr)
		mu.Lock()
		defer mu.Unlock()
		return count
	}
	seconds, n := 1, connect(1)
	for ; n <= 3 && seconds < 16; n = connect(seconds) { // slow machine: retry with a longer timeout
		seconds *= 2
	}
	require.Less(t, n, 30*seconds)
	require.Greater(t, n, 3)
}

func TestForeignPortsAreNamed(t *testing.T) {
	t.Parallel()
	web := doctortest.Listen(t, func(c net.Conn) { c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) })
	_, err := dsnConnect(t, "zk://"+web)
	require.ErrorContains(t, err, "not a ZooKeeper client port")
	require.NotErrorIs(t, err, driver.ErrUnavailable)
	secure := doctortest.Listen(t, func(c net.Conn) { c.Write([]byte{0x15, 3, 3, 0, 2, 2, 80}) })
	_, err = dsnConnect(t, "zk://"+secure)
	require.ErrorContains(t, err, "add tls=true")
}

func TestCloseInAHungHandshakeDoesNotBringTheSessionBack(t *testing.T) {
	t.Parallel()
	b := newFixture(t, "session_timeout=4s")
	p := b.mustCreate("q", "h-W-", "x")
	hold := b.proxy.HoldReplies(zktest.Op(zktest.OpConnect))
	b.proxy.DropConnections()
	closed(t, "it is in a handshake", hold.Held())
	require.ErrorIs(t, b.Close(), driver.ErrUnavailable)
	hold.Release()
	eventually(t, "the node goes when its session times out", func() bool { return !b.there("q", p) })
}

func TestASessionDescribesItself(t *testing.T) {
	s := newFixture(t, "session_timeout=4s&lease_margin=1500ms")
	info, err := s.Read(within(t), "q", s.mustCreate("q", "a-W-", "x").Name)
	require.NoError(t, err)
	want := driver.SessionInfo{ID: info.Owner, Server: s.proxy.Addr(), Timeout: 4 * time.Second, Margin: 1500 * time.Millisecond}
	assert.Equal(t, want, s.Describe())
	require.NoError(t, s.Close())
	assert.Equal(t, want, s.Describe(), "after Close")
}
