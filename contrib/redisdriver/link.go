package redisdriver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/dlock-go/dlock/driver/session"
)

// link manages the connections of one session.
type link struct {
	settings *settings
	listener *line         // for the subscription to notices
	dials    chan struct{} // semaphore for dials by dialByClient
	life     context.Context
	end      context.CancelFunc

	confirmed atomic.Int64 // how many replicas have to confirm each heartbeat

	mu     sync.Mutex
	lines  []*line
	idle   []*line  // most recently used last
	addrs  []string // servers or Sentinels, in order of preference
	server string   // address most recently connected to
	moved  string   // address in a MOVED reply, or empty
	master string   // master's address as last named by Sentinels

	// pending is what the latest dial waits for, as quoted by timeout errors.
	// It is initially empty.
	pending string
}

func newLink(s *settings) *link {
	l := &link{settings: s, addrs: s.addrs, dials: make(chan struct{}, dialLimit)}
	l.life, l.end = context.WithCancel(context.Background())
	l.confirmed.Store(int64(s.replicas))
	l.listener = l.newLine()
	return l
}

func (l *link) newLine() *line {
	x := &line{link: l}
	l.lines = append(l.lines, x)
	return x
}

// take returns an idle line or a new one, so that heartbeats never wait.
func (l *link) take() *line {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := len(l.idle) - 1
	if last < 0 {
		return l.newLine()
	}
	x := l.idle[last]
	l.idle = l.idle[:last]
	return x
}

func (l *link) put(x *line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.idle = append(l.idle, x)
}

func (l *link) all() []*line {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

func (l *link) close() {
	l.end()
	for _, x := range l.all() {
		x.close()
	}
}

// drop closes all connections. The next request on each line dials again.
func (l *link) drop() {
	for _, x := range l.all() {
		x.drop()
	}
}

func (l *link) address() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.server
}

// line is a go-redis client with one connection. It closes the connection when
// a request's context ends, because go-redis can't interrupt a read.
type line struct {
	link *link

	mu       sync.Mutex
	requests int             // number of requests so far
	ctx      context.Context // context of the latest request
	client   *redis.Client   // nil before the first request
	clients  int             // number of clients created so far
	conn     net.Conn        // latest connection of client
	cut      bool            // conn was closed by the line itself

	// refused is the latest handshake's error reply, or nil. Only the goroutine
	// that makes the request uses it.
	refused error
}

// begin returns the client for one request. If ctx ends before done is called,
// the request is interrupted.
func (x *line) begin(ctx context.Context) (client *redis.Client, done func(), err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.link.life.Err() != nil {
		return nil, nil, net.ErrClosed
	}
	if x.cut {
		x.discard()
	}
	if x.client == nil {
		x.client = x.newClient()
	}
	x.ctx = ctx
	x.requests++
	this := x.requests
	stop := context.AfterFunc(ctx, func() { x.interrupt(this) })
	return x.client, func() {
		if !stop() {
			x.interrupt(this)
		}
	}, nil
}

func (x *line) newClient() *redis.Client {
	o := x.link.settings.options()
	o.PoolSize, o.MinIdleConns, o.MaxActiveConns = 1, 0, 0
	if x == x.link.listener {
		// With version 3, go-redis drops notices that arrive in pieces.
		o.Protocol = 2
	}
	x.clients++
	this := x.clients
	o.Dialer = func(_ context.Context, network, _ string) (net.Conn, error) { return x.dial(this, network), nil }
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	client := redis.NewClient(o)
	client.AddHook(handshakes{x})
	return client
}

// handshakes is a go-redis hook that records a handshake's error reply, which
// go-redis drops.
type handshakes struct{ line *line }

func (h handshakes) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h handshakes) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h handshakes) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		err := next(ctx, command)
		if command.Name() == "hello" {
			h.line.refused = err
		}
		return err
	}
}

// reason returns err or, if a refused handshake caused err, the reply to it.
func (x *line) reason(err error) error {
	var reply redis.Error
	if err != nil && !errors.As(err, &reply) && (replied(x.refused, replyFull) || replied(x.refused, replyDenied)) {
		return x.refused
	}
	return err
}

// interrupt closes the connection, unless the line has begun another request.
func (x *line) interrupt(request int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.requests == request {
		x.closeConn()
	}
}

func (x *line) drop() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closeConn()
}

func (x *line) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closeConn()
	x.discard()
}

// closeConn closes the connection. Like discard, it needs x.mu to be held.
func (x *line) closeConn() {
	x.cut = true
	if x.conn != nil {
		_ = x.conn.Close()
	}
}

func (x *line) discard() {
	x.cut = false
	if x.client != nil {
		_ = x.client.Close() // its connection may be closed already
		x.client, x.conn = nil, nil
		x.clients++ // tells a dial in flight to give up
	}
}

// dial connects a go-redis client to the right server. The client was discarded
// if x.clients differs from client.
func (x *line) dial(client int, network string) net.Conn {
	x.mu.Lock()
	request := x.ctx
	x.mu.Unlock()
	ctx, cancel := context.WithTimeout(request, x.link.settings.options().DialTimeout)
	defer cancel()
	defer context.AfterFunc(x.link.life, cancel)()
	conn, addr, err := x.link.dial(ctx, network)
	x.mu.Lock()
	defer x.mu.Unlock()
	if err != nil {
		// After a Sentinel's error reply, go-redis keeps the failed connection.
		// With cut set, the next request gets a new client.
		x.cut = x.cut || x.clients == client
		return unconnected(err)
	}
	if x.clients != client || request.Err() != nil || x.link.life.Err() != nil {
		_ = conn.Close()
		return unconnected(net.ErrClosed)
	}
	x.conn = conn
	x.link.connected(addr)
	return conn
}

// noConn stands in for a failed connection and returns the dial error, because
// go-redis would otherwise redial in the background.
type noConn struct {
	net.Conn // a pipe, except for Read and Write
	err      error
}

func unconnected(err error) net.Conn {
	conn, _ := net.Pipe()
	return noConn{conn, dialError{dialError{err}}} // twice, because go-redis unwraps a handshake error once
}

func (c noConn) Read([]byte) (int, error)  { return 0, c.err }
func (c noConn) Write([]byte) (int, error) { return 0, c.err }

func (l *link) connected(addr string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.server, l.pending = addr, noAnswer+addr
}

func (l *link) waitsFor(pending string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = pending
}

func (l *link) dial(ctx context.Context, network string) (conn net.Conn, addr string, err error) {
	candidates, err := l.candidates(ctx)
	if err != nil {
		return nil, "", err
	}
	var failed error
	passing := false
	for i, addr := range candidates {
		try, cancel := share(ctx, len(candidates)-i)
		conn, err := l.dialServer(try, network, addr)
		cancel()
		if err == nil {
			l.prefer(addr)
			if addr == failoverAddr {
				addr = conn.RemoteAddr().String()
				l.turnTo(addr)
			}
			return conn, addr, nil
		}
		failed = errors.Join(failed, err)
		passing = passing || !permanent(err)
	}
	return nil, "", mixed(failed, passing)
}

// failoverAddr is the address in the options of clients from
// redis.NewFailoverClient, whose dialer ignores it.
const failoverAddr = "FailoverClient"

// mixed hides permanent errors if passing is set, because another attempt may
// succeed later.
func mixed(failed error, passing bool) error {
	if passing && permanent(failed) {
		return errors.New(failed.Error())
	}
	return failed
}

// share limits one of n attempts to its share of the time left in ctx.
func share(ctx context.Context, n int) (context.Context, context.CancelFunc) {
	deadline, _ := ctx.Deadline() // set by line.dial
	return context.WithTimeout(ctx, time.Until(deadline)/time.Duration(n))
}

func (l *link) candidates(ctx context.Context) ([]string, error) {
	if l.settings.sentinel != nil {
		addr, err := l.askSentinels(ctx)
		if err == nil {
			l.turnTo(addr)
		}
		return []string{addr}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.moved == "" {
		return l.addrs, nil
	}
	return append([]string{l.moved}, l.addrs...), nil
}

func (l *link) prefer(addr string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.addrs, addr); i > 0 {
		l.addrs = slices.Concat([]string{addr}, l.addrs[:i], l.addrs[i+1:])
	}
}

func (l *link) order() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.addrs
}

func (l *link) dialServer(ctx context.Context, network, addr string) (net.Conn, error) {
	l.waitsFor("no connection with " + addr)
	if l.settings.dialer != nil {
		return l.dialByClient(ctx, network, addr)
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil || l.settings.tls == nil {
		return conn, err
	}
	config, err := l.settings.tls.config(addr)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	secure := tls.Client(conn, config)
	silence := "TLS with " + addr + ": no answer to the handshake; if the server has no TLS, write redis://"
	l.waitsFor(silence)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("%s: %w", silence, err)
		}
		return nil, fmt.Errorf("TLS with %s: %w", addr, err)
	}
	return secure, nil
}

// sentinels reports whether the session finds the master through Sentinels.
func (l *link) sentinels() bool {
	return l.settings.sentinel != nil || l.settings.dialer != nil && l.settings.addrs[0] == failoverAddr
}

// followSentinels keeps l connected to the master that the Sentinels name. An
// old master could keep the session alive for too long.
func (l *link) followSentinels(ctx context.Context) {
	probe := newLink(l.settings) // separate, so that requests never wait
	defer probe.close()
	for session.Sleep(ctx, l.settings.timeout/4) {
		limited, cancel := context.WithTimeout(ctx, l.settings.timeout/4)
		addr, err := probe.askSentinels(limited)
		cancel()
		if err == nil {
			l.turnTo(addr)
		}
	}
}

func (l *link) turnTo(addr string) {
	l.mu.Lock()
	before := l.master
	l.master = addr
	l.mu.Unlock()
	if before != "" && before != addr {
		l.drop()
	}
}

// askSentinels returns the master's address. It leaves time in ctx to connect.
func (l *link) askSentinels(ctx context.Context) (string, error) {
	if l.settings.sentinel == nil { // the client's dialer asks the Sentinels
		conn, addr, err := l.dial(ctx, "tcp")
		if err == nil {
			_ = conn.Close()
		}
		return addr, err
	}
	failed := fmt.Errorf("no Sentinel knows the master %q", l.settings.sentinel.master)
	passing := false
	addrs := l.order()
	for i, addr := range addrs {
		try, cancel := share(ctx, len(addrs)-i+1)
		master, err := l.askSentinel(try, addr)
		cancel()
		if err == nil {
			l.prefer(addr)
			return master, nil
		}
		failed = fmt.Errorf("%w: %s: %w", failed, addr, err)
		passing = passing || !permanent(err)
	}
	return "", mixed(failed, passing)
}

func (l *link) askSentinel(ctx context.Context, addr string) (string, error) {
	o := l.settings.sentinel.options()
	o.MaxRetries, o.DialerRetries, o.Protocol, o.DisableIdentity = -1, 1, 2, true
	o.Addr = addr
	o.Dialer = func(_ context.Context, network, addr string) (net.Conn, error) {
		conn, err := l.dialServer(ctx, network, addr)
		if err != nil {
			return unconnected(err), nil
		}
		l.waitsFor(noAnswer + "the Sentinel " + addr)
		context.AfterFunc(ctx, func() { _ = conn.Close() }) // go-redis does not stop when ctx ends
		return conn, nil
	}
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	client := redis.NewSentinelClient(o)
	defer client.Close()
	master, err := client.GetMasterAddrByName(ctx, l.settings.sentinel.master).Result()
	if errors.Is(err, net.ErrClosed) { // closed because ctx ended
		err = errSilent
	}
	if errors.Is(err, redis.Nil) {
		err = fmt.Errorf("it monitors no such master: %w", err)
	}
	if err != nil || len(master) != 2 {
		return "", cmp.Or(err, errReply)
	}
	return net.JoinHostPort(master[0], master[1]), nil
}

// redirects is the maximum number of cluster redirects that a request follows.
const redirects = 3

func (l *link) eval(ctx context.Context, s *redis.Script, args ...any) (any, error) {
	return do(ctx, l, func(client *redis.Client) (any, error) {
		return s.Run(ctx, client, []string{l.settings.key("seq")}, args...).Result()
	})
}

func do[T any](ctx context.Context, l *link, request func(*redis.Client) (T, error)) (T, error) {
	x := l.take()
	defer l.put(x)
	return doOn(ctx, x, request)
}

func doOn[T any](ctx context.Context, x *line, request func(*redis.Client) (T, error)) (v T, err error) {
	if ctx.Err() != nil {
		return v, cutShort(ctx)
	}
	for range redirects + 1 {
		client, done, closed := x.begin(ctx)
		if closed != nil {
			return v, mark(closed)
		}
		x.refused = nil
		v, err = request(client)
		done()
		if err == nil {
			return v, nil
		}
		err = x.reason(err)
		if !x.link.follow(err) {
			break
		}
	}
	if err != nil && ctx.Err() != nil {
		return v, x.link.cutShort(ctx)
	}
	return v, mark(x.link.locate(err))
}

// cutShort says what a request was waiting for when its context ended.
func (l *link) cutShort(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pending == "" {
		return cutShort(ctx)
	}
	return fmt.Errorf("%w: %s", cutShort(ctx), l.pending)
}

// locate adds the server's address to errors from which go-redis omits it.
func (l *link) locate(err error) error {
	var reply redis.Error
	server := l.address()
	if err == nil || server == "" || errors.As(err, new(dialError)) || errors.As(err, &reply) {
		return err
	}
	return fmt.Errorf("%s%s: %w", noAnswer, server, err)
}

// passOver moves the latest server to the end of l.addrs, and reports whether
// there is another.
func (l *link) passOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moved = ""
	if i := slices.Index(l.addrs, l.server); i >= 0 {
		l.addrs = slices.Concat(l.addrs[:i], l.addrs[i+1:], l.addrs[i:i+1])
	}
	return l.settings.sentinel == nil && len(l.addrs) > 1
}

// follow leaves a server that is not the master or lacks the keys. It reports
// whether to repeat the request, which has had no effect.
func (l *link) follow(err error) bool {
	if replied(err, "READONLY") || replied(err, "MASTERDOWN") {
		l.drop()
		return l.passOver()
	}
	if !replied(err, "MOVED ") {
		return false
	}
	words := strings.Fields(err.Error()) // MOVED slot host:port
	if len(words) != 3 {
		return false
	}
	colon := strings.LastIndexByte(words[2], ':') // IPv6 addresses have no brackets here
	host, port := words[2][:max(colon, 0)], words[2][colon+1:]
	l.mu.Lock()
	if host == "" { // the server does not know its own name
		host, _, _ = net.SplitHostPort(l.server)
	}
	l.moved = net.JoinHostPort(host, port)
	l.mu.Unlock()
	l.drop()
	return true
}
