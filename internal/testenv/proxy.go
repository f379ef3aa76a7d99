package testenv

import (
	"maps"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Direction is one of the two directions through a proxy.
type Direction int

const (
	ToServer Direction = iota
	ToClient
)

// Proxy is a TCP proxy in front of a server. It cuts, delays, refuses and drops
// connections. If it knows the protocol, it also counts requests, and loses or
// holds single ones. Bytes that are not of that protocol, such as TLS, are
// forwarded as they come.
//
// A Proxy is safe for use by many goroutines; its methods return at once.
type Proxy struct {
	listener  net.Listener
	protocol  Protocol
	dialAgain bool
	done      sync.WaitGroup

	mu          sync.Mutex
	wake        *sync.Cond // signalled when a field below has changed
	target      string
	closed      bool
	refusing    bool
	cut         [2]bool
	delay       [2]time.Duration
	connections map[*connection]bool
	counts      map[int32]int // the number of requests so far, by operation
	hook        func(op int32)
	faults      []*fault
	events      *EventHold // holds back all events; nil: events pass
}

// NewProxy returns a proxy for the server at target. A nil protocol forwards
// bytes as they come. The proxy is closed when the test ends, and leaves no
// goroutine.
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

// ListenProxy returns a proxy that already has its address, but accepts
// connections only after a call of [Proxy.Serve]. It is for the links between
// servers, whose addresses all have to be known first.
func ListenProxy(target string) (*Proxy, error) {
	l, err := Listen()
	if err != nil {
		return nil, err
	}
	return ProxyOn(l, target), nil
}

// ProxyOn is like [ListenProxy], but the proxy uses the listener l, and
// [Proxy.Close] closes l.
func ProxyOn(l net.Listener, target string) *Proxy {
	p := &Proxy{listener: l, target: target, connections: make(map[*connection]bool), counts: make(map[int32]int)}
	p.wake = sync.NewCond(&p.mu)
	return p
}

// DialAgain makes the proxy dial again, for about two seconds, if the target
// refuses a connection. Call it before [Proxy.Serve].
func (p *Proxy) DialAgain() { p.dialAgain = true }

// Serve makes the proxy accept connections. A nil protocol forwards bytes as they come.
func (p *Proxy) Serve(protocol Protocol) {
	if protocol == nil {
		protocol = func() (requests, replies FrameReader) { return ReadBytes, ReadBytes }
	}
	p.protocol = protocol
	p.done.Go(p.accept)
}

// Addr returns host:port for clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Port returns the port for clients.
func (p *Proxy) Port() string { return strconv.Itoa(p.listener.Addr().(*net.TCPAddr).Port) }

// Target returns host:port of the server that new connections reach.
func (p *Proxy) Target() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target
}

// Cut stops forwarding in both directions, silently. Connections stay open, the
// proxy accepts new ones, and nothing passes, neither data nor the end of a
// connection. After [Proxy.Heal] everything passes that was held up, as with
// TCP after an outage.
func (p *Proxy) Cut() {
	p.change(func() { p.cut = [2]bool{true, true} })
}

// CutOneWay is [Proxy.Cut] in one direction, in addition to what is cut already.
func (p *Proxy) CutOneWay(d Direction) {
	p.change(func() { p.cut[d] = true })
}

// Refuse makes the proxy close new connections at once, like a server that is
// down. Connections that are open stay: see [Proxy.DropConnections].
func (p *Proxy) Refuse() {
	p.change(func() { p.refusing = true })
}

// Heal ends [Proxy.Cut], [Proxy.CutOneWay] and [Proxy.Refuse].
func (p *Proxy) Heal() {
	p.change(func() { p.cut, p.refusing = [2]bool{}, false })
}

// DropConnections closes all connections, on both sides. Frames that were held
// up are lost.
func (p *Proxy) DropConnections() {
	p.change(func() {
		for c := range p.connections {
			c.abort()
		}
	})
}

// SetDelay makes everything take d longer in each direction, from now on.
func (p *Proxy) SetDelay(d time.Duration) {
	p.change(func() { p.delay = [2]time.Duration{d, d} })
}

// SetDelayOneWay is [Proxy.SetDelay] in one direction.
func (p *Proxy) SetDelayOneWay(dir Direction, d time.Duration) {
	p.change(func() { p.delay[dir] = d })
}

// Retarget makes new connections reach another server. Open connections stay.
func (p *Proxy) Retarget(addr string) {
	p.change(func() { p.target = addr })
}

// Connections returns how many connections are open through the proxy.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.connections)
}

// Counts returns how many requests clients have sent through the proxy, by
// operation, whether or not the proxy forwarded them.
func (p *Proxy) Counts() map[int32]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.counts)
}

// Frames returns how many requests with that operation clients have sent
// through the proxy, whether or not the proxy forwarded them.
func (p *Proxy) Frames(op int32) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[op]
}

// OnRequest sets a hook that is called with every request before it is
// forwarded, from a goroutine of its connection. The hook may call the proxy's
// methods. Nil removes it.
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

// Close closes the proxy and all its connections, and waits until its
// goroutines have ended.
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
