package zktest

import (
	"errors"
	"net"
	"path"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

const rawTimeout = 10 * time.Second

// Raw returns a plain go-zookeeper client with a session timeout of 10s. It is
// closed when the test ends.
func (s *Server) Raw(t testing.TB) *zk.Conn {
	t.Helper()
	return Dial(t, rawTimeout, s.Addr())
}

// Dial returns a plain go-zookeeper client that already has a session and logs
// nothing. It is closed when the test ends and leaves no goroutines.
func Dial(t testing.TB, sessionTimeout time.Duration, addrs ...string) *zk.Conn {
	t.Helper()
	conn, end, err := Connect(sessionTimeout, addrs...)
	if err != nil {
		t.Fatalf("zktest: no session with %v: %v", addrs, err)
	}
	t.Cleanup(end)
	return conn
}

// Connect is like [Dial] but returns errors. The returned function closes the
// client and waits for its goroutines to exit.
func Connect(sessionTimeout time.Duration, addrs ...string) (*zk.Conn, func(), error) {
	return connect(sessionTimeout, net.DialTimeout, addrs...)
}

// connect waits for the session, because earlier requests fail once
// go-zookeeper has tried each server.
func connect(sessionTimeout time.Duration, dial zk.Dialer, addrs ...string) (*zk.Conn, func(), error) {
	session := make(chan struct{}, 1)
	dialer := &closingDialer{dialer: dial}
	conn, events, err := zk.Connect(addrs, sessionTimeout, zk.WithLogger(silent{}), zk.WithDialer(dialer.dial), zk.WithEventCallback(func(e zk.Event) {
		if e.State == zk.StateHasSession {
			select {
			case session <- struct{}{}:
			default:
			}
		}
	}))
	if err != nil {
		return nil, nil, err
	}
	end := func() {
		conn.Close()
		dialer.close()
		for range events { // the client's last goroutine closes events
		}
	}
	select {
	case <-session:
		return conn, end, nil
	case <-time.After(30 * time.Second):
		end()
		return nil, nil, errors.New("timed out")
	}
}

// closingDialer closes connections before the client, whose Close blocks if the
// server is unreachable.
type closingDialer struct {
	dialer zk.Dialer

	mu     sync.Mutex
	conn   net.Conn
	closed bool
}

func (d *closingDialer) dial(network, addr string, timeout time.Duration) (net.Conn, error) {
	conn, err := d.dialer(network, addr, timeout)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		conn.Close()
		return nil, net.ErrClosed
	}
	d.conn = conn
	return conn, nil
}

func (d *closingDialer) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.conn != nil {
		d.conn.Close()
	}
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// Tree returns the sorted paths of all nodes below root, except ZooKeeper's own
// below /zookeeper. The root need not exist.
func (s *Server) Tree(t testing.TB, root string) []string {
	t.Helper()
	var paths []string
	s.admin(t, func(conn *zk.Conn) (err error) {
		paths, err = tree(conn, root)
		return err
	})
	return paths
}

func tree(conn *zk.Conn, root string) ([]string, error) {
	var paths []string
	for unvisited := []string{root}; len(unvisited) > 0; unvisited = unvisited[1:] {
		children, _, err := conn.Children(unvisited[0])
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return nil, err
		}
		for _, child := range children {
			if p := path.Join(unvisited[0], child); p != "/zookeeper" {
				paths = append(paths, p)
				unvisited = append(unvisited, p)
			}
		}
	}
	slices.Sort(paths)
	return paths, nil
}

func removeTree(conn *zk.Conn, root string) error {
	paths, err := tree(conn, root)
	if err != nil {
		return err
	}
	for _, p := range slices.Backward(append([]string{root}, paths...)) { // backward, because a parent sorts before its children
		if err := conn.Delete(p, -1); err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	return nil
}
