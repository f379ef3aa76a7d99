package demo

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
	"github.com/dlock-go/dlock/recipes"
)

// cut controls a connection to the store. No data passes over the connection
// between the calls of begin and end.
type cut struct{ begin, end, close func() }

// openThroughCut returns an opener whose clients share one connection to the
// store, and a cut that interrupts it.
func (s *settings) openThroughCut() (opener, cut, error) {
	if s.Driver == inMemory {
		return s.openMemory()
	}
	at, err := s.serverInDSN()
	if err != nil {
		return nil, cut{}, err
	}
	server := s.DSN[at[0]:at[1]]
	if _, _, err := net.SplitHostPort(server); err != nil {
		server = net.JoinHostPort(strings.Trim(server, "[]"), examples[s.Driver].port)
	}
	p, err := listenProxy(server)
	if err != nil {
		return nil, cut{}, err
	}
	through := *s
	through.DSN = s.DSN[:at[0]] + p.Addr().String() + s.DSN[at[1]:]
	return through.open, cut{p.cut, p.heal, p.close}, nil
}

// openMemory is openThroughCut for an in-memory store.
func (s *settings) openMemory() (opener, cut, error) {
	connector, err := memdriver.Driver{}.OpenConnector(s.DSN)
	if err != nil {
		return nil, cut{}, err
	}
	name, _, _ := strings.Cut(s.DSN, "?")
	faults := memdriver.Open(name).Faults()
	one := &remembered{Connector: connector}
	var mu sync.Mutex
	heal := func() {} // guarded by mu
	open := func(host string, trace *recipes.Trace) (locker, error) {
		c := dlock.NewClient(one, s.options(host, trace)...)
		return client{c, c.RWMutex(s.Lock)}, nil
	}
	return open, cut{
		begin: func() {
			mu.Lock()
			defer mu.Unlock()
			heal = faults.CutOff(one.session())
		},
		end: func() {
			mu.Lock()
			defer mu.Unlock()
			heal()
		},
		close: func() {},
	}, nil
}

// remembered is a connector that keeps its last session, so that it can be cut
// off.
type remembered struct {
	driver.Connector
	mu   sync.Mutex
	last driver.Session // guarded by mu
}

func (r *remembered) Connect(ctx context.Context) (driver.Session, error) {
	s, err := r.Connector.Connect(ctx)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.last = s
	}
	return s, err
}

func (r *remembered) session() driver.Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

var (
	afterScheme = regexp.MustCompile(`^[a-z]+://(?:[^/?@]*@)?([^/?@]+)(?:[/?]|$)`)
	inBrackets  = regexp.MustCompile(`^(?:[^/]*@)?tcp\(([^()]+)\)/`)
)

// serverInDSN returns the start and end of the server address in the data
// source name. It returns an error unless there is exactly one server.
func (s *settings) serverInDSN() (at [2]int, err error) {
	e := examples[s.Driver]
	if e.port == "" {
		return at, fmt.Errorf("-fault cut: a connection of -driver %s cannot be cut; try -fault pause", clean(s.Driver))
	}
	for _, pattern := range []*regexp.Regexp{afterScheme, inBrackets} {
		if m := pattern.FindStringSubmatchIndex(s.DSN); m != nil && !strings.Contains(s.DSN[m[2]:m[3]], ",") {
			return [2]int{m[2], m[3]}, nil
		}
	}
	return at, fmt.Errorf("-fault cut: the demo cuts the connection to one server, so -dsn must have the form '%s'", e.dsn)
}

// proxy forwards connections to a server, except while it is cut.
type proxy struct {
	net.Listener
	server string
	done   sync.WaitGroup

	mu     sync.Mutex
	healed chan struct{}     // guarded by mu; closed unless the proxy is cut
	conns  map[net.Conn]bool // guarded by mu; nil after close
}

func listenProxy(server string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{Listener: l, server: server, healed: make(chan struct{}), conns: make(map[net.Conn]bool)}
	close(p.healed)
	p.done.Go(p.accept)
	return p, nil
}

func (p *proxy) accept() {
	for {
		c, err := p.Accept()
		if err != nil {
			return
		}
		p.done.Go(func() { p.forward(c) })
	}
}

func (p *proxy) forward(c net.Conn) {
	defer c.Close()
	if !p.keep(c) {
		return
	}
	s, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer s.Close()
	if !p.keep(s) {
		return
	}
	p.done.Go(func() { p.pass(c, s) })
	p.pass(s, c)
}

// pass copies data in one direction until an error, and then closes both
// connections.
func (p *proxy) pass(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		p.mu.Lock()
		healed := p.healed
		p.mu.Unlock()
		<-healed
		if _, failed := to.Write(b[:n]); err != nil || failed != nil {
			return
		}
	}
}

// keep registers a connection so that close closes it. It returns false if the
// proxy is already closed.
func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns != nil {
		p.conns[c] = true
	}
	return p.conns != nil
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.healed = make(chan struct{})
}

func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.healed:
	default:
		close(p.healed)
	}
}

// close closes all connections and waits for the proxy's goroutines.
func (p *proxy) close() {
	_ = p.Listener.Close()
	p.heal()
	p.mu.Lock()
	for c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
	p.mu.Unlock()
	p.done.Wait()
}
