package redisdriver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/dlock-go/dlock/driver/calls"
)

// link is a client of go-redis whose connections end with the link. go-redis itself
// does not interrupt a read if its context ends, and its Close ends neither
// subscriptions nor dials.
type link struct {
	settings *settings
	client   *redis.Client
	requests *calls.Group // what callers ask for
	upkeep   *calls.Group // heartbeats and the like: they do not wait for callers
	life     context.Context
	end      context.CancelFunc

	mu     sync.Mutex
	conns  map[*trackedConn]bool
	server string // the address of the latest connection
	moved  string // the server that a MOVED reply has named, or empty
}

// upkeepCalls is the number of requests of a session that may be on their way besides
// those of callers.
const upkeepCalls = 4

func newLink(s *settings) *link {
	o := s.options()
	l := &link{
		settings: s, conns: make(map[*trackedConn]bool),
		requests: calls.NewGroup(o.PoolSize), upkeep: calls.NewGroup(upkeepCalls),
	}
	l.life, l.end = context.WithCancel(context.Background())
	o.PoolSize += upkeepCalls + 1
	o.Dialer = l.dial
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	l.client = redis.NewClient(o)
	return l
}

// close ends all connections, and with them all requests. It may be called again.
func (l *link) close() {
	l.end()
	l.drop()
	_ = l.client.Close() // an error says that the client is closed
}

// wait waits until the goroutines of all calls have ended. It is called after close.
func (l *link) wait() {
	_ = l.requests.Wait(context.Background())
	_ = l.upkeep.Wait(context.Background())
}

// drop closes all connections. Later requests dial again.
func (l *link) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Conn.Close()
	}
	clear(l.conns)
}

// address returns the address of the server to which the link was connected last.
func (l *link) address() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.server
}

// dial connects to the server that has the keys. It takes the place of go-redis's own
// dialer.
func (l *link) dial(_ context.Context, network, _ string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(l.life, l.settings.options().DialTimeout)
	defer cancel()
	candidates, err := l.candidates(ctx)
	if err != nil {
		return nil, err
	}
	var failed error
	for _, addr := range candidates {
		conn, err := l.dialServer(ctx, network, addr)
		if err == nil {
			return l.track(conn, addr)
		}
		failed = errors.Join(failed, err)
	}
	return nil, failed
}

// candidates returns the addresses to try, the best first.
func (l *link) candidates(ctx context.Context) ([]string, error) {
	if l.settings.sentinel != nil {
		addr, err := l.askSentinels(ctx)
		return []string{addr}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.moved == "" {
		return l.settings.addrs, nil
	}
	return append([]string{l.moved}, l.settings.addrs...), nil
}

func (l *link) dialServer(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil || l.settings.tls == nil {
		return conn, err
	}
	config, err := l.settings.tls.config(addr)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("TLS with %s: %w", addr, err)
	}
	return secure, nil
}

func (l *link) track(conn net.Conn, addr string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.life.Err() != nil {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	l.server = addr
	tracked := &trackedConn{Conn: conn, link: l}
	l.conns[tracked] = true
	if raw, ok := conn.(syscall.Conn); ok {
		return checkedConn{tracked, raw}, nil
	}
	return tracked, nil
}

// trackedConn is a connection that its link can close.
type trackedConn struct {
	net.Conn
	link *link
}

func (c *trackedConn) Close() error {
	c.link.mu.Lock()
	delete(c.link.conns, c)
	c.link.mu.Unlock()
	return c.Conn.Close()
}

// checkedConn lets go-redis see whether the server has closed an idle connection. A
// connection with TLS cannot be checked like that.
type checkedConn struct {
	*trackedConn
	syscall.Conn
}

// askSentinels returns the address of the master. It asks one Sentinel after the
// other.
func (l *link) askSentinels(ctx context.Context) (string, error) {
	failed := fmt.Errorf("no Sentinel knows the master %q", l.settings.sentinel.master)
	for _, addr := range l.settings.addrs {
		o := l.settings.sentinel.options()
		o.MaxRetries, o.DialerRetries, o.Protocol, o.DisableIdentity = -1, 1, 2, true
		o.ContextTimeoutEnabled = true
		o.Addr = addr
		o.Dialer = l.dialServer
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		client := redis.NewSentinelClient(o)
		master, err := client.GetMasterAddrByName(ctx, l.settings.sentinel.master).Result()
		_ = client.Close()
		if err == nil && len(master) == 2 {
			return net.JoinHostPort(master[0], master[1]), nil
		}
		failed = fmt.Errorf("%w: %s: %w", failed, addr, err)
	}
	return "", failed
}

// redirects is how many MOVED replies a request follows.
const redirects = 3

// eval runs a script. If ctx ends, eval returns at once, and the request may still
// arrive.
func (l *link) eval(ctx context.Context, g *calls.Group, s *redis.Script, args ...any) (any, error) {
	return do(ctx, l, g, func() (any, error) {
		return s.Run(l.life, l.client, []string{l.settings.key("seq")}, args...).Result()
	})
}

// do calls a function of go-redis that does not end with a context.
func do[T any](ctx context.Context, l *link, g *calls.Group, request func() (T, error)) (T, error) {
	v, err := calls.Do(ctx, g, func() (v T, err error) {
		for range redirects + 1 {
			v, err = request()
			if !l.follow(err) {
				break
			}
		}
		return v, err
	}, nil)
	if err != nil && ctx.Err() != nil {
		return v, cutShort(ctx)
	}
	return v, mark(err)
}

// follow makes the next request go to another server, if err says that this server
// does not have the keys or is not a master any more. It reports whether the request
// was refused with the name of another server. The request was not carried out then.
func (l *link) follow(err error) bool {
	if replied(err, "READONLY") || replied(err, "MASTERDOWN") {
		l.drop()
		return false
	}
	if !replied(err, "MOVED ") {
		return false
	}
	words := strings.Fields(err.Error()) // MOVED slot host:port
	if len(words) != 3 {
		return false
	}
	l.mu.Lock()
	moved := words[2]
	if strings.HasPrefix(moved, ":") { // the server does not know its own name
		host, _, _ := net.SplitHostPort(l.server)
		moved = net.JoinHostPort(host, moved[1:])
	}
	l.moved = moved
	l.mu.Unlock()
	l.drop()
	return true
}

// pause waits for d. It returns false if the link has been closed.
func (l *link) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-l.life.Done():
		return false
	}
}
