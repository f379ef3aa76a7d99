package sqltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/testenv"
)

// Silence is a proxy that simulates a firewall that drops connections without
// closing them. It affects the connections opened by its Dial method.
type Silence struct {
	*testenv.Proxy
	Held   <-chan struct{} // closed when the first connection has fallen silent
	mu     sync.Mutex
	texts  []string // guarded by mu
	opened int      // connections so far; guarded by mu
	silent int      // lower-numbered connections are silent; guarded by mu
}

func NewSilence(t *testing.T, addr string) *Silence {
	s := new(Silence)
	s.Proxy = testenv.NewProxy(t, addr, s.protocol)
	s.Held = s.HoldRequests(func(op int32) bool { return op == lost }).Held()
	return s
}

// lost marks requests that the proxy never passes on.
const lost = 1

// protocol treats each chunk of bytes from the client as a request.
func (s *Silence) protocol() (requests, replies testenv.FrameReader) {
	s.mu.Lock()
	defer s.mu.Unlock()
	number := s.opened
	s.opened++
	return func(r io.Reader) (testenv.Frame, error) {
		f, err := testenv.ReadBytes(r)
		f.Kind = testenv.Request
		if s.begins(f.Bytes, number) {
			f.Op = lost
		}
		return f, err
	}, testenv.ReadBytes
}

// Begin makes a connection fall silent when it sends the first of the texts:
// that text and all that follows on the connection are lost. After that, the
// connection that sends the second text falls silent, and so on.
func (s *Silence) Begin(texts ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.texts = texts
}

// begins reports whether b's connection falls silent, by a text of Begin or by
// forget.
func (s *Silence) begins(b []byte, number int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.texts) == 0 || !bytes.Contains(b, []byte(s.texts[0])) {
		return number < s.silent
	}
	s.texts = s.texts[1:]
	return true
}

func (s *Silence) left() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.texts)
}

// forget makes all connections fall silent if there are at least n.
func (s *Silence) forget(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened < n {
		return false
	}
	s.silent = s.opened
	return true
}

// Dial connects to the proxy, whatever the address.
func (s *Silence) Dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, s.Addr())
}

// Connecting begins a session whose connections a test can make fall silent.
type Connecting func(t *testing.T) (driver.Session, *Silence)

// SilentConnection checks that requests on a connection that falls silent
// return, even without a deadline. The function sent returns a queue's name as
// requests contain it. The function dead adds an expired session, with a node
// in the queue "queue", to the database of the given session.
func SilentConnection(t *testing.T, connect Connecting, sent func(name string) string, dead func(driver.Session) error) {
	silentBackground(t, connect, sent, dead)
	type request func(ctx context.Context, s driver.Session, own driver.Joined) error
	for name, ask := range map[string]request{
		"Create": func(ctx context.Context, s driver.Session, _ driver.Joined) error {
			_, err := s.Create(ctx, "queue", driver.NodeSpec{Prefix: "a-W-", Data: []byte("orphan")})
			return err
		},
		"List": func(ctx context.Context, s driver.Session, _ driver.Joined) error {
			_, err := s.List(ctx, "queue")
			return err
		},
		"Watch": func(ctx context.Context, s driver.Session, own driver.Joined) error {
			w, err := s.Watch(ctx, "queue", own.Place)
			w.Stop()
			return err
		},
		"WatchQueue": func(ctx context.Context, s driver.Session, _ driver.Joined) error {
			w, err := s.WatchQueue(ctx, "queue")
			w.Stop()
			return err
		},
		"Replace": func(ctx context.Context, s driver.Session, own driver.Joined) error {
			_, err := s.Replace(ctx, "queue", own.Place, "b-W-")
			return err
		},
		"Read": func(ctx context.Context, s driver.Session, own driver.Joined) error {
			_, err := driver.Inspect(s).Read(ctx, "queue", own.Name)
			return err
		},
		"Walk": func(ctx context.Context, s driver.Session, _ driver.Joined) error {
			_, err := driver.Inspect(s).Walk(ctx, "queue")
			return err
		},
		"Remove": func(ctx context.Context, s driver.Session, own driver.Joined) error {
			return driver.Inspect(s).Remove(ctx, "queue", own.Place)
		},
		"Delete": func(ctx context.Context, s driver.Session, own driver.Joined) error {
			// Only Delete must succeed on another connection. The test expects
			// ErrUnavailable.
			if err := s.Delete(ctx, "queue", own.Place, driver.Released); err != nil {
				return errors.New("the second request of Delete has failed: " + err.Error())
			}
			return driver.ErrUnavailable
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, silence := connect(t)
			own, err := s.Create(t.Context(), "queue", driver.NodeSpec{Prefix: "a-W-", Data: []byte("own")})
			require.NoError(t, err)
			silence.Begin(sent("queue"))
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if err := ask(ctx, s, own); !errors.Is(err, driver.ErrUnavailable) || ctx.Err() != nil {
				t.Fatalf("error %v, the request has ended by itself: %v", err, ctx.Err() == nil)
			} else if errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("the error says that a deadline of the caller has passed: %v", err)
			}
			require.NoError(t, s.Err(), "the session has ended")
			if silence.left() > 0 {
				t.Fatal("no connection was silent")
			}
			for name == "Create" {
				nodes, err := s.List(ctx, "queue")
				if err == nil && len(nodes) == 1 && nodes[0] == own.Node {
					break
				}
				if ctx.Err() != nil {
					t.Fatalf("nodes %v, error %v", nodes, err)
				}
			}
		})
	}
}

// silentBackground checks that Expire and Cancel are retried if their
// connection falls silent.
func silentBackground(t *testing.T, connect Connecting, sent func(name string) string, dead func(driver.Session) error) {
	for name, prepare := range map[string]func(ctx context.Context, silence *Silence, s driver.Session) error{
		"Expire": func(_ context.Context, silence *Silence, s driver.Session) error {
			silence.Begin("expire")
			return dead(s)
		},
		"Cancel": func(ctx context.Context, silence *Silence, s driver.Session) error {
			orphan := driver.NodeSpec{Prefix: "a-W-", Data: []byte("orphan")}
			if _, err := s.Create(ctx, "queue", orphan); err != nil {
				return err
			}
			silence.Begin(sent("queue"), "cancel")
			if _, err := s.Create(ctx, "queue", orphan); !errors.Is(err, driver.ErrUnavailable) {
				return fmt.Errorf("error of Create: %w", err)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, silence := connect(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			require.NoError(t, prepare(ctx, silence, s))
			for {
				nodes, err := s.List(ctx, "queue")
				if err == nil && len(nodes) == 0 && silence.left() == 0 {
					return
				}
				if ctx.Err() != nil {
					t.Fatalf("nodes %v are left, error %v, connections that are not silent: %d", nodes, err, silence.left())
				}
			}
		})
	}
}

// ForgottenConnections checks that a session survives a firewall that drops all
// of its connections, many of them idle.
func ForgottenConnections(t *testing.T, connect Connecting) {
	s, silence := connect(t)
	for !silence.forget(7) {
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				_, err := s.List(t.Context(), "queue")
				assert.NoError(t, err)
			})
		}
		all.Wait()
	}
	select {
	case <-s.Done():
		t.Errorf("the session has ended: %v", s.Err())
	case <-time.After(driver.Inspect(s).Describe().Timeout): // long enough for heartbeats to use new connections
	}
}

// Dial opens a network connection to a server.
type Dial func(ctx context.Context, network, addr string) (net.Conn, error)

// SilentServer checks that the error of Connect names a server that accepts the
// connection but sends nothing. The function connect must call dial for addr.
func SilentServer(t *testing.T, connect func(ctx context.Context, addr string, dial Dial) error, want Refusal) {
	t.Helper()
	server, err := testenv.Listen()
	require.NoError(t, err)
	defer server.Close()
	addr := server.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	want.Texts = append(want.Texts, addr)
	want.check(t, connect(ctx, addr, func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return waitingConn{conn, cancel}, nil
	}))
}

// waitingConn calls the function waits when the client starts to read a reply.
type waitingConn struct {
	net.Conn
	waits func()
}

func (c waitingConn) Read(b []byte) (int, error) {
	c.waits()
	return c.Conn.Read(b)
}

// SilentConnect checks that Connect returns, even without a deadline, if the
// server accepts connections but sends nothing. connect must use dial.
func SilentConnect(t *testing.T, connect func(ctx context.Context, dial Dial) error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		err := connect(t.Context(), func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go io.Copy(io.Discard, server)
			return client, nil
		})
		if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
}
