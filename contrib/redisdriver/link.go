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
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// link is the connections of a session with the server. Each connection belongs to a
// line, and all end with the link.
type link struct {
	settings *settings
	requests *pool // lines for what callers ask for
	upkeep   *pool // lines for heartbeats and the like, which wait for no caller
	listener *line // the line for the subscription
	life     context.Context
	end      context.CancelFunc

	mu     sync.Mutex
	lines  []*line
	addrs  []string // the servers or Sentinels, the one to try first before the others
	server string   // the address of the latest connection
	moved  string   // the server that a MOVED reply has named, or empty

	// pending says what the latest connection waits for: the dial, a handshake or an
	// answer. It is empty before the first dial, and is for the texts of errors.
	pending string
}

// upkeepLines is the number of requests of a session that may be on their way besides
// those of callers: three heartbeats, a look at a queue, and a cancellation.
const upkeepLines = 5

func newLink(s *settings) *link {
	l := &link{settings: s, addrs: s.addrs}
	l.life, l.end = context.WithCancel(context.Background())
	l.requests, l.upkeep = l.newPool(s.options().PoolSize), l.newPool(upkeepLines)
	l.listener = l.newLine()
	return l
}

func (l *link) newLine() *line {
	x := &line{link: l}
	l.lines = append(l.lines, x)
	return x
}

func (l *link) newPool(n int) *pool {
	p := &pool{free: make(chan struct{}, n)}
	for range n {
		p.put(l.newLine())
	}
	return p
}

// pool has the idle lines for one kind of requests. A request takes the line that was
// used last. So a session that makes one request at a time uses one connection, whose
// buffers are still in the caches of the processor.
type pool struct {
	free chan struct{} // a value for each idle line
	mu   sync.Mutex
	idle []*line // in the order of their last use
}

// take returns a line after the caller has received from p.free.
func (p *pool) take() *line {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.idle) - 1
	x := p.idle[last]
	p.idle = p.idle[:last]
	return x
}

func (p *pool) put(x *line) {
	p.mu.Lock()
	p.idle = append(p.idle, x)
	p.mu.Unlock()
	p.free <- struct{}{}
}

// wait returns when no request is under way. It must not be called by two goroutines at
// once.
func (p *pool) wait() {
	for range cap(p.free) {
		<-p.free
	}
	for range cap(p.free) {
		p.free <- struct{}{}
	}
}

// close ends all connections, and with them all requests. It may be called again.
func (l *link) close() {
	l.end()
	for _, x := range l.lines {
		x.close()
	}
}

// drop closes all connections. Later requests dial again.
func (l *link) drop() {
	for _, x := range l.lines {
		x.drop()
	}
}

// address returns the address of the server to which the link was connected last.
func (l *link) address() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.server
}

// line is a client of go-redis with one connection, for one request at a time.
// go-redis does not end a read when a context ends. So the line closes the connection
// then, and the request returns at once, on the goroutine of its caller.
type line struct {
	link *link

	mu       sync.Mutex
	requests int             // the number of requests so far
	ctx      context.Context // the context of the latest request
	client   *redis.Client   // nil before the first request
	clients  int             // the number of clients so far
	conn     net.Conn        // the latest connection of the client
	cut      bool            // the line has closed the connection

	// refused is the error reply to the latest handshake, or nil. Only the goroutine of
	// the request uses it.
	refused error
}

// begin prepares the line for a request. If ctx ends before the call of done, the
// request fails at once.
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
		// With version 3, go-redis throws a notice away whose first bytes come alone.
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

// handshakes keeps the error reply to a handshake, because go-redis drops it. A server
// without room for another client sends such a reply, and closes the connection.
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

// reason returns the reply with which the server has refused the connection, if that is
// why the request has failed, and otherwise err.
func (x *line) reason(err error) error {
	var reply redis.Error
	if err != nil && !errors.As(err, &reply) && (replied(x.refused, replyFull) || replied(x.refused, replyDenied)) {
		return x.refused
	}
	return err
}

// interrupt closes the connection if the request with the given number is still the
// latest one of the line, whether it is under way or has ended.
func (x *line) interrupt(request int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.requests == request {
		x.closeConn()
	}
}

// drop closes the connection. The next request makes a new one.
func (x *line) drop() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closeConn()
}

// close closes the connection and the client.
func (x *line) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closeConn()
	x.discard()
}

// closeConn and discard are called with the mutex held.
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
		x.clients++ // so a dial that is still under way for the old client closes its connection
	}
}

// dial connects to the server that has the keys, for the request that the line makes.
// It takes the place of go-redis's own dialer.
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
		// After an error reply, such as that of a Sentinel, go-redis would use the
		// connection again. So the next request uses a new client.
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

// noConn takes the place of a connection that could not be made. After an error of its
// dialer, go-redis would write to standard error, wait, and dial again and again in the
// background, for up to a second after the end of the session.
type noConn struct {
	net.Conn // for the methods that no error comes from
	err      error
}

func unconnected(err error) net.Conn {
	conn, _ := net.Pipe()
	return noConn{conn, dialError{dialError{err}}} // go-redis unwraps the error of a handshake once
}

func (c noConn) Read([]byte) (int, error)  { return 0, c.err }
func (c noConn) Write([]byte) (int, error) { return 0, c.err }

func (l *link) connected(addr string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.server, l.pending = addr, noAnswer+addr
}

// waitsFor sets l.pending.
func (l *link) waitsFor(pending string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pending = pending
}

// dial connects to one of the candidates.
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
			return conn, addr, nil
		}
		failed = errors.Join(failed, err)
		passing = passing || !permanent(err)
	}
	return nil, "", mixed(failed, passing)
}

// mixed returns the error of several tries that have all failed. If one of their errors
// may pass, it counts as an error that may pass.
func mixed(failed error, passing bool) error {
	if passing && permanent(failed) {
		return errors.New(failed.Error())
	}
	return failed
}

// share returns a context for the first of n tries that all have to end with ctx. So a
// machine that does not answer leaves time for the others.
func share(ctx context.Context, n int) (context.Context, context.CancelFunc) {
	deadline, _ := ctx.Deadline() // the one of line.dial
	return context.WithTimeout(ctx, time.Until(deadline)/time.Duration(n))
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
		return l.addrs, nil
	}
	return append([]string{l.moved}, l.addrs...), nil
}

// prefer makes the link try this address before the others, because it has answered.
func (l *link) prefer(addr string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.addrs, addr); i > 0 {
		l.addrs = slices.Concat([]string{addr}, l.addrs[:i], l.addrs[i+1:])
	}
}

// order returns the addresses, the one to try first before the others.
func (l *link) order() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.addrs
}

func (l *link) dialServer(ctx context.Context, network, addr string) (net.Conn, error) {
	l.waitsFor("no connection with " + addr)
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

// askSentinels returns the address of the master. It asks one Sentinel after the
// other, and leaves time for the connection with the master.
func (l *link) askSentinels(ctx context.Context) (string, error) {
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

// askSentinel asks one Sentinel. go-redis ends neither a dial nor a read when a context
// ends, so askSentinel does that itself.
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
		context.AfterFunc(ctx, func() { _ = conn.Close() })
		return conn, nil
	}
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	client := redis.NewSentinelClient(o)
	defer client.Close()
	master, err := client.GetMasterAddrByName(ctx, l.settings.sentinel.master).Result()
	if errors.Is(err, net.ErrClosed) { // ctx has closed the connection
		err = errSilent
	}
	if err != nil || len(master) != 2 {
		return "", cmp.Or(err, errReply)
	}
	return net.JoinHostPort(master[0], master[1]), nil
}

// redirects is how often a request follows a reply to another server.
const redirects = 3

// eval runs a script. If ctx ends, eval returns at once, and the request may still
// arrive.
func (l *link) eval(ctx context.Context, p *pool, s *redis.Script, args ...any) (any, error) {
	return do(ctx, l, p, func(client *redis.Client) (any, error) {
		return s.Run(ctx, client, []string{l.settings.key("seq")}, args...).Result()
	})
}

// do makes a request on an idle line.
func do[T any](ctx context.Context, l *link, p *pool, request func(*redis.Client) (T, error)) (v T, err error) {
	select {
	case <-p.free:
		x := p.take()
		defer p.put(x)
		return doOn(ctx, x, request)
	case <-ctx.Done():
		return v, cutShort(ctx)
	case <-l.life.Done():
		return v, mark(net.ErrClosed)
	}
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

// cutShort returns the error of a request whose context has ended, and says what the
// request waited for. go-redis does not say that: it returns while the dial goes on.
func (l *link) cutShort(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pending == "" {
		return cutShort(ctx)
	}
	return fmt.Errorf("%w: %s", cutShort(ctx), l.pending)
}

// locate adds the address of the server to an error of a connection, because go-redis
// leaves it out. The error of a dial has the address already.
func (l *link) locate(err error) error {
	var reply redis.Error
	server := l.address()
	if err == nil || server == "" || errors.As(err, new(dialError)) || errors.As(err, &reply) {
		return err
	}
	return fmt.Errorf("%s%s: %w", noAnswer, server, err)
}

// passOver makes the next dial try the server of the latest connection last. It
// reports whether there is another one to try.
func (l *link) passOver() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.moved = ""
	if i := slices.Index(l.addrs, l.server); i >= 0 {
		l.addrs = slices.Concat(l.addrs[:i], l.addrs[i+1:], l.addrs[i:i+1])
	}
	return l.settings.sentinel == nil && len(l.addrs) > 1
}

// follow makes the next request go to another server, if err says that this server
// does not have the keys or is not a master any more. It reports whether there is
// such a server. In that case the server has not carried out the request.
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
	colon := strings.LastIndexByte(words[2], ':') // an address of IPv6 has no brackets here
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

// retries spaces out the tries of a loop while the server fails.
type retries struct {
	longest time.Duration // the longest pause
	last    time.Duration
}

const retryAfter = 20 * time.Millisecond

// newRetries returns retries whose pauses begin with retryAfter and become longer, up
// to the time between two heartbeats or one second, whichever is less.
func (s *settings) newRetries() retries {
	return retries{longest: max(retryAfter, min(s.timeout/8, time.Second))}
}

// next returns the pause before the next try.
func (r *retries) next() time.Duration {
	r.last = min(max(2*r.last, retryAfter), r.longest)
	return r.last
}

// reset is called after a success.
func (r *retries) reset() { r.last = 0 }

// pause waits for d. It returns false if the link has been closed.
func (l *link) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-l.life.Done():
		return false
	}
}
