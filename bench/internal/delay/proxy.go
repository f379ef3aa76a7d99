// Package delay adds network delay between clients and a server on one machine.
//
// A [Proxy] listens on loopback and forwards connections to a server. Everything that
// it reads is written to the other side after a fixed delay, in both directions. The
// delay starts when the proxy reads the bytes. So the delays of bytes that follow
// each other closely overlap, and the bytes leave the proxy in the same order and at
// the same intervals as they arrived. The end of a connection is delayed in the same
// way.
//
// Only the two TCP handshakes of a connection are not delayed.
package delay

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// Proxy forwards connections to one server with a delay.
type Proxy struct {
	listener net.Listener
	target   string
	delay    time.Duration
	running  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]bool // the open connections to clients and to the server
}

// Start returns a proxy for the server at target, a host:port. Everything that
// the proxy forwards, in either direction, arrives later by the given delay.
// The caller closes the proxy.
func Start(target string, delay time.Duration) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, target: target, delay: delay, conns: map[net.Conn]bool{}}
	p.running.Go(p.accept)
	return p, nil
}

// Addr returns host:port for clients.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Close closes the listener and all connections, and waits until the goroutines of
// the proxy have ended, which takes no longer than the delay. Bytes that are still
// delayed are lost.
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

// connect forwards one connection until both directions have ended.
func (p *Proxy) connect(client net.Conn) {
	defer client.Close()
	server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil {
		return // the client sees the end of its connection
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

// add registers connections that Close has to close. It reports whether the proxy is
// still open.
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

// forward copies one direction of a connection, from src to dst. After the end
// of src it closes dst for writing. After an error it closes both connections.
func (p *Proxy) forward(dst, src net.Conn) {
	err := p.copyDelayed(dst, src)
	if err == nil {
		err = dst.(*net.TCPConn).CloseWrite()
	}
	if err != nil {
		dst.Close()
		src.Close()
	}
}

func (p *Proxy) copyDelayed(dst io.Writer, src io.ReadCloser) error {
	t, err := newTimer()
	if err != nil {
		return err
	}
	defer t.close()
	return copyDelayed(dst, src, p.delay, t.sleepUntil)
}

// chunk is the result of one Read.
type chunk struct {
	bytes []byte
	err   error // the error of the Read; nil in every chunk but the last
	due   time.Time
}

// maxDelayed is the maximum number of chunks that are delayed at the same time.
// At this number, copyDelayed stops reading for a while, which slows the sender
// down.
const maxDelayed = 10_000

// copyDelayed writes to dst what it reads from src, each chunk after the delay. It
// returns nil once it has written everything up to the end of src, and an error if a
// Read, a Write or sleepUntil fails. After an error it has closed src.
func copyDelayed(dst io.Writer, src io.ReadCloser, delay time.Duration, sleepUntil func(time.Time) error) error {
	chunks := make(chan chunk, maxDelayed)
	stopped := make(chan struct{})
	var reading sync.WaitGroup
	reading.Go(func() { readChunks(src, delay, chunks, stopped) })
	err := writeChunks(dst, chunks, sleepUntil)
	if err != nil {
		src.Close()
	}
	close(stopped)
	reading.Wait()
	return err
}

// readChunks sends what it reads to chunks, until a Read fails or stopped is closed.
func readChunks(src io.Reader, delay time.Duration, chunks chan<- chunk, stopped <-chan struct{}) {
	for {
		buf := make([]byte, 16<<10)
		n, err := src.Read(buf)
		c := chunk{bytes: buf[:n], err: err, due: time.Now().Add(delay)}
		select {
		case chunks <- c:
		case <-stopped:
			return
		}
		if err != nil {
			return
		}
	}
}

// writeChunks writes each chunk when it is due, until the last one or an error. The
// regular end of a stream is no error.
func writeChunks(dst io.Writer, chunks <-chan chunk, sleepUntil func(time.Time) error) error {
	for c := range chunks {
		if err := sleepUntil(c.due); err != nil {
			return err
		}
		if len(c.bytes) > 0 {
			if _, err := dst.Write(c.bytes); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(c.err, io.EOF):
			return nil
		case c.err != nil:
			return c.err
		}
	}
	return nil
}
