package testenv

import (
	"maps"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"
)

type Direction int

const (
	ToServer Direction = iota
	ToClient
)

// Proxy is a TCP proxy in front of a server. It can cut, delay, refuse and drop
// connections. With a protocol, it can also count, lose and hold individual
// requests. Bytes that are not in that protocol, such as TLS, are forwarded
// unchanged.
//
// A Proxy is safe for concurrent use. Its methods don't block.
type Proxy struct {
	listener  net.Listener
	protocol  Protocol
	dialAgain bool
	done      sync.WaitGroup

	mu          sync.Mutex
	wake        *sync.Cond // signaled when a field below changes
	target      string
	closed      bool
	refusing    bool
	cut         [2]bool
	delay       [2]time.Duration
	connections map[*connection]bool
	counts      map[int32]int // requests so far, by operation
	hook        func(op int32)
	faults      []*fault
	events      *EventHold // nil unless events are held
}

// NewProxy returns a proxy for the server at target. With a nil protocol, it
// forwards bytes unchanged. The proxy is closed when the test ends and leaves
// no goroutines.
func NewProxy(t testing.TB, target string, protocol Protocol) *Proxy {
	t.Helper()
	p, err := ListenProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	p.Serve(protocol)
	t.Cleanup(p.Close)
	return p
}

// ListenProxy returns a proxy that has an address, but accepts connections only
// after [Proxy.Serve]. It is for links between servers, whose addresses all
// have to be known before any is started.
func ListenProxy(target string) (*Proxy, error) {
	l, err := Listen()
	if err != nil {
		return nil, err
	}
	return ProxyOn(l, target), nil
}

// ProxyOn is like [ListenProxy] but uses the listener l, which [Proxy.Close]
// closes.
func ProxyOn(l net.Listener, target string) *Proxy {
	p := &Proxy{listener: l, target: target, connections: make(map[*connection]bool), counts: make(map[int32]int)}
	p.wake = sync.NewCond(&p.mu)
	return p
}

// DialAgain makes the proxy redial for about two seconds if the target refuses
// a connection. It must be called before [Proxy.Serve].
func (p *Proxy) DialAgain() { p.dialAgain = true }

// Serve makes the proxy accept connections. With a nil protocol, it forwards
// bytes unchanged.
func (p *Proxy) Serve(protocol Protocol) {
	if protocol == nil {
		protocol = func() (requests, replies FrameReader) { return ReadBytes, ReadBytes }
	}
	p.protocol = protocol
	p.done.Go(p.accept)
}

// Addr returns the address to which clients connect, as host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

func (p *Proxy) Port() string { return strconv.Itoa(p.listener.Addr().(*net.TCPAddr).Port) }

// Target returns the address of the server that new connections lead to, as
// host:port.
func (p *Proxy) Target() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target
}

// Cut silently stops forwarding in both directions until [Proxy.Heal].
// Connections stay open and new ones are accepted, but nothing passes, not even
// the end of a connection. All of it passes later, as with TCP after an outage.
func (p *Proxy) Cut() {
	p.change(func() { p.cut = [2]bool{true, true} })
}

// CutOneWay is like [Proxy.Cut] for one direction. Earlier cuts stay in effect.
func (p *Proxy) CutOneWay(d Direction) {
	p.change(func() { p.cut[d] = true })
}

// Refuse makes the proxy close new connections at once, as if the server were
// down, until [Proxy.Heal]. Open connections are not affected.
func (p *Proxy) Refuse() {
	p.change(func() { p.refusing = true })
}

// Heal ends [Proxy.Cut], [Proxy.CutOneWay] and [Proxy.Refuse].
func (p *Proxy) Heal() {
	p.change(func() { p.cut, p.refusing = [2]bool{}, false })
}

// DropConnections closes all connections on both sides. Data not yet forwarded
// is lost.
func (p *Proxy) DropConnections() {
	p.change(func() {
		for c := range p.connections {
			c.abort()
		}
	})
}

// SetDelay delays all later data by d in each direction.
func (p *Proxy) SetDelay(d time.Duration) {
	p.change(func() { p.delay = [2]time.Duration{d, d} })
}

// SetDelayOneWay is like [Proxy.SetDelay] for one direction.
func (p *Proxy) SetDelayOneWay(dir Direction, d time.Duration) {
	p.change(func() { p.delay[dir] = d })
}

// Retarget directs new connections to another server. Open connections are not
// affected.
func (p *Proxy) Retarget(addr string) {
	p.change(func() { p.target = addr })
}

func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.connections)
}

// Counts returns the number of requests received from clients, by operation,
// whether or not they were forwarded.
func (p *Proxy) Counts() map[int32]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// Frames returns the number of requests for op received from clients, whether
// or not they were forwarded.
func (p *Proxy) Frames(op int32) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[op]
}

// OnRequest makes the proxy call hook with the operation of each request before
// it forwards the request. OnRequest(nil) ends this. The hook may be called
// from any of the proxy's goroutines, and may call methods of the proxy.
func (p *Proxy) OnRequest(hook func(op int32)) {
	p.change(func() { p.hook = hook })
}

func (p *Proxy) countRequest(op int32) {
	p.mu.Lock()
	p.counts[op]++
	hook := p.hook
	p.mu.Unlock()
	if hook != nil {
		hook(op)
	}
}

func (p *Proxy) change(set func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	set()
	p.wake.Broadcast()
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		if p.closed || p.refusing {
			conn.Close()
		} else {
			p.startConnection(conn)
		}
		p.mu.Unlock()
	}
}

// Close closes the proxy and its connections, and waits for its goroutines to
// exit.
func (p *Proxy) Close() {
	p.listener.Close()
	p.change(func() {
		p.closed = true
		for c := range p.connections {
			c.abort()
		}
	})
	p.done.Wait()
}
