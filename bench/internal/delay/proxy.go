// Package delay adds network delay between clients and a server on one machine.
//
// A [Proxy] forwards all bytes, in both directions, with a fixed delay from the
// moment it reads them, so that the delays of consecutive chunks overlap and their
// order and intervals stay. The end of a connection is delayed, too, but not its TCP
// handshakes.
package delay

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Proxy forwards connections to a server with a fixed delay.
type Proxy struct {
	listener net.Listener
	target   string
	delay    time.Duration
	running  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]bool // open, to clients and to the server
}

// Start returns a proxy for target, a server's host:port, that delays each
// direction. The caller must close it.
func Start(target string, delay time.Duration) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, target: target, delay: delay, conns: map[net.Conn]bool{}}
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns the proxy's host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close closes all connections and waits for the proxy's goroutines, which
// takes at most the delay. Bytes still being delayed are lost.
func (p *Proxy) Close() {
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	for c := range p.conns {
		c.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return // the proxy is closed
		}
		p.running.Go(func() { p.connect(client) })
	}
}

func (p *Proxy) connect(client net.Conn) {
	defer client.Close()
	server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil {
		return // the client sees its connection closed
	}
	defer server.Close()
	if !p.add(client, server) {
		return
	}
	defer p.remove(client, server)
	var directions sync.WaitGroup
	directions.Go(func() { p.forward(server, client) })
	directions.Go(func() { p.forward(client, server) })
	directions.Wait()
}

// add registers connections to be closed by Close. It returns false if the
// proxy is already closed.
func (p *Proxy) add(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		p.conns[c] = true
	}
	return !p.closed
}

func (p *Proxy) remove(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.conns, c)
	}
}

// forward copies src to dst. At the end of src it closes dst for writing. After
// an error it closes both connections.
func (p *Proxy) forward(dst, src net.Conn) {
	t, err := newTimer()
	if err == nil {
		defer t.close()
		err = copyDelayed(dst, src, p.delay, t.sleepUntil)
	}
	if err == nil {
		err = dst.(*net.TCPConn).CloseWrite()
	}
	if err != nil {
		dst.Close()
		src.Close()
	}
}

// chunk is the result of one Read call.
type chunk struct {
	bytes []byte
	err   error
	due   time.Time
}

// maxDelayed bounds the number of chunks being delayed at a time. At the limit,
// copyDelayed stops reading, which slows the sender down.
const maxDelayed = 10_000

// copyDelayed copies src to dst, delaying each chunk. It returns nil at the end
// of src. If it returns an error, it has closed src.
func copyDelayed(dst io.Writer, src io.ReadCloser, delay time.Duration, sleepUntil func(time.Time) error) error {
	chunks := make(chan chunk, maxDelayed)
	go func() {
		defer close(chunks)
		for err := error(nil); err == nil; {
			buf := make([]byte, 16<<10)
			var n int
			n, err = src.Read(buf)
			chunks <- chunk{buf[:n], err, time.Now().Add(delay)}
		}
	}()
	var failure error
	for c := range chunks { // even after an error, until reading has ended
		if failure != nil {
			continue
		}
		failure = sleepUntil(c.due)
		if failure == nil && len(c.bytes) > 0 {
			_, failure = dst.Write(c.bytes)
		}
		if failure == nil && !errors.Is(c.err, io.EOF) {
			failure = c.err
		}
		if failure != nil {
			src.Close()
		}
	}
	return failure
}
