package zktest

import (
	"net"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Direction is one of the two ways through a proxy.
type Direction int

const (
	ToServer Direction = iota
	ToClient
)

// Proxy is a TCP proxy in front of a server, which can lose, hold and
// delay what passes. It understands ZooKeeper's client protocol, so that single
// requests and replies can be counted and hit; what is not of that protocol (TLS, four-letter
// words, the links between servers) it forwards as it comes.
//
// A Proxy is safe for use by many goroutines; its methods return at once.
type Proxy struct {
	listener net.Listener
	plain    bool                // forwards without looking
	patient  bool                // tries again for a while where the target refuses
	rewrite  func([]byte) []byte // changes the greeting of an election connection
	done     sync.WaitGroup

	mu       sync.Mutex
	wake     *sync.Cond // something below changed
	target   string
	closed   bool
	refusing bool
	cut      [2]bool
	delay    [2]time.Duration
	links    map[*link]bool
	frames   map[int32]int
	hook     func(opcode int32)
	faults   []*fault
	events   *EventHold // nil: events pass
	sessions []Session
}

// NewProxy returns a proxy for targetAddr. It is closed when the test ends, and no goroutine of it
// is left then.
func NewProxy(t testing.TB, targetAddr string) *Proxy {
	t.Helper()
	p, err := newProxy(targetAddr)
	if err != nil {
		t.Fatal(err)
	}
	p.serve()
	t.Cleanup(p.close)
	return p
}

func newProxy(target string) (*Proxy, error) {
	l, err := listenLoopback()
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, target: target, links: make(map[*link]bool), frames: make(map[int32]int)}
	p.wake = sync.NewCond(&p.mu)
	return p, nil
}

func (p *Proxy) serve() { p.done.Go(p.accept) }

// Addr returns host:port for clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

func (p *Proxy) port() string { return strconv.Itoa(p.listener.Addr().(*net.TCPAddr).Port) }

// Cut stops forwarding in both directions, silently: connections stay open, new ones are
// accepted, and nothing passes, neither data nor the end of a connection. After [Proxy.Heal] everything
// that was held up passes, as TCP does it after an outage.
func (p *Proxy) Cut() {
	p.change(func() { p.cut = [2]bool{true, true} })
}

// CutOneWay is [Proxy.Cut] in one direction, in addition to what is cut already.
func (p *Proxy) CutOneWay(d Direction) {
	p.change(func() { p.cut[d] = true })
}

// Refuse makes the proxy close connections as soon as they are made, in the manner of a
// server that is down. Those that are there stay: see [Proxy.DropConnections].
func (p *Proxy) Refuse() {
	p.change(func() { p.refusing = true })
}

// Heal ends [Proxy.Cut], [Proxy.CutOneWay] and [Proxy.Refuse].
func (p *Proxy) Heal() {
	p.change(func() { p.cut, p.refusing = [2]bool{}, false })
}

// DropConnections closes all connections, on both sides. What was held up is lost.
func (p *Proxy) DropConnections() {
	p.change(func() {
		for l := range p.links {
			l.abort()
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

// Retarget sends new connections to another server. Those that are there stay.
func (p *Proxy) Retarget(addr string) {
	p.change(func() { p.target = addr })
}

// Connections returns how many connections are open through the proxy.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Frames returns how many requests with that opcode clients have sent through the proxy,
// whether or not they were forwarded.
func (p *Proxy) Frames(opcode int32) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.frames[opcode]
}

// Requests returns how many requests clients have sent through the proxy, without
// those that keep a session: connects, pings and closes.
func (p *Proxy) Requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	sum := 0
	for opcode, n := range p.frames {
		if opcode != OpConnect && opcode != OpPing && opcode != OpClose {
			sum += n
		}
	}
	return sum
}

// OnRequest sets a hook that is called with every request before it is forwarded, from a
// goroutine of its connection; it may call the proxy's methods. Nil removes it.
func (p *Proxy) OnRequest(hook func(opcode int32)) {
	p.change(func() { p.hook = hook })
}

// Sessions returns what servers have replied to connect requests, oldest first; a
// reconnect of a session counts again, and a refused session has the id 0.
func (p *Proxy) Sessions() []Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Session(nil), p.sessions...)
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
			p.startLink(conn)
		}
		p.mu.Unlock()
	}
}

func (p *Proxy) close() {
	p.listener.Close()
	p.change(func() {
		p.closed = true
		for l := range p.links {
			l.abort()
		}
	})
	p.done.Wait()
}
