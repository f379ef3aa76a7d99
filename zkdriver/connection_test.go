package zkdriver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/zktest"
)

func listener(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return serveAll(t, l, serve)
}

func serveAll(t *testing.T, l net.Listener, serve func(net.Conn)) string {
	t.Helper()
	var group sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	group.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			group.Go(func() { serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		group.Wait()
	})
	return l.Addr().String()
}

func hang(net.Conn) {}

func drop(c net.Conn) { c.Close() }

func TestHostThatHangsInTheHandshakeDoesNotCostTheSession(t *testing.T) {
	t.Parallel()
	server := zktest.Shared(t)
	chroot := server.Chroot(t)
	first, second := zktest.NewProxy(t, server.Addr()), zktest.NewProxy(t, server.Addr())
	hosts := strings.Join([]string{first.Addr(), listener(t, hang), second.Addr()}, ",")
	lives(t, 4*time.Second, func(timeout time.Duration) error {
		s := mustConnect(t, "zk://"+hosts+chroot+"?session_timeout="+timeout.String())
		for i := range 6 {
			p, err := create(context.Background(), s, "q", "h-W-", []byte{byte(i)})
			if err != nil {
				return err
			}
			id := s.conn.SessionID()
			first.DropConnections()
			second.DropConnections()
			if _, err = s.List(within(t), "q"); errors.Is(err, driver.ErrUnavailable) {
				_, err = s.List(within(t), "q")
			}
			if err != nil {
				return err
			}
			require.Equal(t, id, s.conn.SessionID())
			if err := s.Delete(within(t), "q", p, driver.Changed); err != nil {
				return err
			}
		}
		return s.Err()
	})
}

func TestASilentServerIsReplacedByAnother(t *testing.T) {
	t.Parallel()
	server := zktest.Shared(t)
	chroot := server.Chroot(t)
	proxies := []*zktest.Proxy{zktest.NewProxy(t, server.Addr()), zktest.NewProxy(t, server.Addr())}
	lives(t, 4*time.Second, func(timeout time.Duration) error {
		s := mustConnect(t, "zk://"+proxies[0].Addr()+","+proxies[1].Addr()+chroot+"?session_timeout="+timeout.String())
		p, err := create(within(t), s, "q", "h-W-", []byte("x"))
		if err != nil {
			return err
		}
		for _, proxy := range proxies {
			if proxy.Connections() > 0 {
				proxy.Cut()
				defer proxy.Heal()
			}
		}
		eventually(t, "another server answers", func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			nodes, err := s.List(ctx, "q")
			return s.Err() != nil || err == nil && slices.ContainsFunc(nodes, func(n driver.Node) bool { return n.Name == p.Name })
		})
		return s.Err()
	})
}

func TestServersThatDropConnectionsAreNotOverloaded(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	count := 0
	addr := listener(t, func(c net.Conn) {
		mu.Lock()
		count++
		mu.Unlock()
		drop(c)
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
	for ; n <= 3 && seconds < 16; n = connect(seconds) { // too slow a machine: retry with a longer timeout
		seconds *= 2
	}
	require.Less(t, n, 30*seconds)
	require.Greater(t, n, 3)
}

func TestConnectEndsWithItsContext(t *testing.T) {
	t.Parallel()
	c, err := Driver{}.OpenConnector("zk://" + listener(t, hang) + "?connect_timeout=30s")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = c.Connect(ctx)
	require.ErrorIs(t, err, context.Canceled)
	ctx, cancel = context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err = c.Connect(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(begin), bound)
}

func TestForeignPortsAreNamed(t *testing.T) {
	t.Parallel()
	web := listener(t, func(c net.Conn) { c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) })
	_, err := dsnConnect(t, "zk://"+web)
	require.ErrorContains(t, err, "not a ZooKeeper client port")
	require.NotErrorIs(t, err, driver.ErrUnavailable)
	secure := listener(t, func(c net.Conn) { c.Write([]byte{0x15, 3, 3, 0, 2, 2, 80}) })
	_, err = dsnConnect(t, "zk://"+secure)
	require.ErrorContains(t, err, "add tls=true")
}

func TestExpiryEndsTheSession(t *testing.T) {
	b := newFixture(t, "session_timeout=20s")
	b.mustCreate("q", "h-W-", "x")
	b.proxy.Refuse()
	require.NoError(t, zktest.Expire(b.server.Addr(), b.conn.SessionID(), nil))
	b.proxy.Heal()
	closed(t, "the session is over", b.Done())
	require.ErrorContains(t, b.Err(), "the server has let the session expire")
	_, err := create(within(t), b, "q", "h-W-", []byte("y"))
	require.ErrorIs(t, err, driver.ErrSessionEnded)
	require.NoError(t, b.Close())
	require.Empty(t, b.nodes("q"))
}

func TestIPv6(t *testing.T) {
	server := zktest.Shared(t)
	l, err := net.Listen("tcp", "[::1]:0")
	if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
		t.Skip("this machine has no IPv6: ", err)
	}
	require.NoError(t, err)
	addr := serveAll(t, l, func(c net.Conn) {
		there, err := net.Dial("tcp", server.Addr())
		if err != nil {
			return
		}
		go func() {
			io.Copy(there, c)
			there.Close()
		}()
		io.Copy(c, there)
		c.Close()
	})
	s := mustConnect(t, "zk://"+addr+server.Chroot(t))
	p, err := create(within(t), s, "q", "h-W-", []byte("x"))
	require.NoError(t, err)
	require.NoError(t, s.Delete(within(t), "q", p, driver.Changed))
}

func TestCloseLeavesNoGoroutineWhateverItInterrupts(t *testing.T) {
	server := zktest.Shared(t)
	chroot := server.Chroot(t)
	noneLeft(t, "earlier tests")
	var sessions sync.WaitGroup
	for name, disturb := range map[string]func(*zktest.Proxy){
		"nothing":       func(*zktest.Proxy) {},
		"drop":          (*zktest.Proxy).DropConnections,
		"cut":           (*zktest.Proxy).Cut,
		"cut and drop":  func(p *zktest.Proxy) { p.Cut(); p.DropConnections() },
		"refuse, drop":  func(p *zktest.Proxy) { p.Refuse(); p.DropConnections() },
		"held requests": func(p *zktest.Proxy) { p.HoldRequests(zktest.Op(zktest.OpMulti)) },
	} {
		p := zktest.NewProxy(t, server.Addr())
		defer p.Heal() // lets the cleanup close the sessions without waiting for an unreachable server
		s := mustConnect(t, "zk://"+p.Addr()+chroot+"?session_timeout=2s")
		place, err := create(within(t), s, "q", "h-W-", []byte("x"))
		require.NoError(t, err)
		_, err = watchName(within(t), s, "q", place.Name)
		require.NoError(t, err)
		disturb(p)
		for i := range 20 {
			sessions.Go(func() { create(within(t), s, "q", "h-W-", []byte{byte(i)}) })
			sessions.Go(func() { s.List(context.Background(), "q") })
		}
		sessions.Go(func() { // concurrently, because closing a session can take seconds
			begin := time.Now()
			s.Close()
			assert.Less(t, time.Since(begin), 10*time.Second, name)
		})
	}
	sessions.Wait()
	noneLeft(t, "every session is closed")
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
	eventually(t, "the node goes when its session times out", func() bool {
		there, _, err := b.raw.Exists(b.chroot + "/q/" + p.Name)
		return err == nil && !there
	})
}

func TestASessionDescribesItself(t *testing.T) {
	server := zktest.Shared(t)
	for _, handover := range []string{"release", "list"} {
		dsn := "zk://" + server.Addr() + server.Chroot(t) + "?session_timeout=4s&lease_margin=1500ms&handover=" + handover
		c, err := Driver{}.OpenConnector(dsn)
		require.NoError(t, err)
		s, err := c.Connect(within(t))
		require.NoError(t, err)
		t.Cleanup(func() { s.Close() })
		p, err := create(within(t), s, "q", "a-W-", []byte("x"))
		require.NoError(t, err)
		info, err := driver.Inspect(s).Read(within(t), "q", p.Name)
		require.NoError(t, err)
		want := driver.SessionInfo{ID: info.Owner, Server: server.Addr(), Timeout: 4 * time.Second, Margin: 1500 * time.Millisecond}
		assert.Equal(t, want, driver.Inspect(s).Describe(), "handover=%s", handover)
		require.NoError(t, s.Close())
		assert.Equal(t, want, driver.Inspect(s).Describe(), "after Close")
	}
}
