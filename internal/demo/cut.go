package demo

import (
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync"
)

// These patterns split a data source name with one server into three parts:
// what precedes the server, the server, and the rest.
var (
	withScheme   = regexp.MustCompile(`^([a-z]+://(?:[^/?@]*@)?)([^/?@,]+)((?:[/?].*)?)$`)
	withBrackets = regexp.MustCompile(`^((?:[^/]*@)?tcp\()([^(),]+)(\)/.*)$`)
)

func (s *settings) splitDSN() (before, server, after string, err error) {
	e := examples[s.Driver]
	if e.port == "" {
		return "", "", "", fmt.Errorf("-fault cut: a connection of -driver %s cannot be cut; try -fault pause", s.Driver)
	}
	for _, form := range []*regexp.Regexp{withScheme, withBrackets} {
		if m := form.FindStringSubmatch(s.DSN); m != nil {
			return m[1], m[2], m[3], nil
		}
	}
	return "", "", "", fmt.Errorf("-fault cut: the demo cuts the connection to one server, so -dsn must have the form '%s'", e.dsn)
}

// connectThroughProxy puts a proxy in place of the server in the DSN.
func (s *settings) connectThroughProxy() (*proxy, error) {
	before, server, after, err := s.splitDSN()
	if err != nil {
		return nil, err
	}
	if _, _, err := net.SplitHostPort(server); err != nil {
		server = net.JoinHostPort(strings.Trim(server, "[]"), examples[s.Driver].port)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{Listener: listener, server: server}
	s.DSN = before + p.Addr().String() + after
	p.done.Go(p.accept)
	return p, nil
}

// proxy forwards connections to a server. During a cut it passes nothing on.
type proxy struct {
	net.Listener
	server string
	open   sync.RWMutex // write-locked by a cut, read-locked by pass
	done   sync.WaitGroup
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
	s, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer s.Close()
	p.done.Go(func() { p.pass(c, s) })
	p.pass(s, c)
}

func (p *proxy) pass(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		p.open.RLock()
		_, failed := to.Write(b[:n])
		p.open.RUnlock()
		if err != nil || failed != nil {
			return
		}
	}
}

// close waits for all connections to end, so the client must have exited.
func (p *proxy) close() {
	_ = p.Listener.Close()
	p.done.Wait()
}
