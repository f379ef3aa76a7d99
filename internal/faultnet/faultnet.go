// Package faultnet injects network faults between a driver's session and its
// store. It implements the hooks CutOff, Reset, SilenceNotices and DelayReplies
// of dlocktest.Config. A driver's test creates a [Network] per session and
// gives its Dial to the client library. Authors of drivers may copy this file.
//
// A Network starts no goroutines, so nothing is left once the session has
// closed its connections.
package faultnet

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Network makes the connections of one session. The zero Network injects no
// faults. A Network is safe for concurrent use.
type Network struct {
	// Notices is a text, such as "LISTEN", that the session sends only on the
	// connection that receives notices. It must be set before the first Dial if
	// SilenceNotices is used.
	Notices string

	mu    sync.Mutex
	delay time.Duration
	cut   chan struct{} // non-nil during a cut; closed when it ends
	conns map[*conn]bool
}

// Cut drops all bytes until heal is called. Connections stay open, so the
// session gets no error. heal then breaks these connections, because they may
// have lost bytes. heal is idempotent.
func (n *Network) Cut() (heal func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	cut := make(chan struct{})
	n.cut = cut
	return sync.OnceFunc(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.breakAll()
		if n.cut == cut { // no newer cut
			n.cut = nil
		}
		close(cut)
	})
}

// Connections returns the number of open connections.
func (n *Network) Connections() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.conns)
}

// Reset breaks all connections.
func (n *Network) Reset() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.breakAll()
}

// SilenceNotices drops all further bytes that the session would receive on
// connections on which it has sent Notices. The connections stay open.
// Connections that send Notices later are not affected.
func (n *Network) SilenceNotices() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.conns {
		c.silent = c.notices
	}
}

func (n *Network) breakAll() {
	for c := range n.conns {
		c.broken = true
		_ = c.Conn.Close() // fails the session's next Read or Write
	}
	clear(n.conns)
}

// DelayReplies delays each later reply by d. A delayed reply that arrived
// before a cut is still received.
func (n *Network) DelayReplies(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = d
}

// Dial connects to the store. During a cut it blocks until heal is called or
// ctx is done.
func (n *Network) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	n.mu.Lock()
	cut := n.cut
	n.mu.Unlock()
	if cut != nil {
		select {
		case <-cut:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	inner, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cut != nil {
		return nil, errors.Join(errors.New("faultnet: cut off"), inner.Close())
	}
	if n.conns == nil {
		n.conns = make(map[*conn]bool)
	}
	c := &conn{Conn: inner, network: n}
	n.conns[c] = true
	return c, nil
}

type conn struct {
	net.Conn
	network *Network

	// Guarded by network.mu.
	broken  bool
	notices bool // whether the session has sent Notices here
	silent  bool
}

// state returns the delay of replies, and whether received bytes are dropped.
func (c *conn) state() (delay time.Duration, lost bool) {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	return c.network.delay, c.network.cut != nil || c.broken || c.silent
}

// Read implements net.Conn. During a cut or on a silenced connection, it
// discards what it receives.
func (c *conn) Read(p []byte) (int, error) {
	for {
		size, err := c.Conn.Read(p)
		delay, lost := c.state()
		if err != nil || !lost {
			time.Sleep(delay)
			return size, err
		}
	}
}

// Write implements net.Conn. During a cut, it discards p and reports success.
func (c *conn) Write(p []byte) (int, error) {
	c.network.mu.Lock()
	cut := c.network.cut != nil
	if text := c.network.Notices; text != "" && bytes.Contains(p, []byte(text)) {
		c.notices = true
	}
	c.network.mu.Unlock()
	if cut {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *conn) Close() error {
	c.network.mu.Lock()
	defer c.network.mu.Unlock()
	delete(c.network.conns, c)
	return c.Conn.Close()
}
