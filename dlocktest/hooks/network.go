package hooks

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

// Network is the network between one session and its server, over TCP. It
// injects the faults of the hooks CutOff, Reset, SilenceNotices and DelayReplies
// of dlocktest.Config. The session must connect with [Network.Dial].
type Network struct {
	proxy   *testenv.Proxy
	server  string
	notices []byte

	// A separate mutex avoids a deadlock: the proxy opens lines under a lock of
	// its own, and methods call the proxy under mu.
	linesMu sync.Mutex
	lines   []*line // guarded by linesMu

	mu     sync.Mutex
	slow   bool // guarded by mu; replies are delayed
	cut    bool // guarded by mu
	closed bool // guarded by mu
}

type line struct {
	notices bool // guarded by Network.linesMu; the session has sent Network.notices
	silent  bool // guarded by Network.linesMu; nothing more is received
}

// NewNetwork returns a network without faults. The session sends the text
// notices, such as "LISTEN", on the connections that receive notices, and on no
// others. If the text is empty, no connection receives notices.
//
// Close the network when the session's Close returns or Connect fails. A
// t.Cleanup runs too late, because rule 11 counts the connections earlier.
func NewNetwork(server, notices string) (*Network, error) {
	// Not testenv.Listen, which would keep a lock file open for each session.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	n := &Network{proxy: testenv.ProxyOn(l, server), server: server, notices: []byte(notices)}
	n.proxy.Serve(n.protocol)
	return n, nil
}

func (n *Network) protocol() (requests, replies testenv.FrameReader) {
	l := new(line)
	n.linesMu.Lock()
	n.lines = append(n.lines, l)
	n.linesMu.Unlock()
	requests = func(r io.Reader) (testenv.Frame, error) {
		f, err := testenv.ReadBytes(r)
		n.linesMu.Lock()
		defer n.linesMu.Unlock()
		l.notices = l.notices || len(n.notices) > 0 && bytes.Contains(f.Bytes, n.notices)
		return f, err
	}
	replies = func(r io.Reader) (testenv.Frame, error) {
		f, err := testenv.ReadBytes(r)
		n.linesMu.Lock()
		defer n.linesMu.Unlock()
		if l.silent {
			f.Bytes = nil // forward nothing
		}
		return f, err
	}
	return requests, replies
}

// Dial connects through the network or, once it is closed, directly to the
// server. If the network was closed during a cut, Dial fails.
func (n *Network) Dial(ctx context.Context, network, _ string) (net.Conn, error) {
	n.mu.Lock()
	addr, cut := n.proxy.Addr(), n.closed && n.cut
	if n.closed {
		addr = n.server
	}
	n.mu.Unlock()
	if cut {
		return nil, errors.New("cut off")
	}
	return new(net.Dialer).DialContext(ctx, network, addr)
}

// Cut stops all bytes in both directions until heal is called; only delayed
// replies in flight still arrive. Connections stay open until heal breaks them,
// and what was sent during the cut is then lost. heal is idempotent.
func (n *Network) Cut() (heal func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = true
	n.proxy.CutOneWay(testenv.ToServer)
	if !n.slow {
		n.proxy.Cut()
	}
	return sync.OnceFunc(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.cut = false
		n.proxy.DropConnections()
		n.proxy.Heal()
	})
}

// Reset breaks all connections.
func (n *Network) Reset() { n.proxy.DropConnections() }

// DelayReplies delays each later reply by d.
func (n *Network) DelayReplies(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slow = true
	n.proxy.SetDelayOneWay(testenv.ToClient, d)
}

// SilenceNotices drops all further bytes to the session on the connections that
// receive notices. They stay open. Later connections are not affected.
func (n *Network) SilenceNotices() {
	n.linesMu.Lock()
	defer n.linesMu.Unlock()
	for _, l := range n.lines {
		l.silent = l.notices
	}
}

// Close breaks all connections and leaves no goroutine.
func (n *Network) Close() {
	n.mu.Lock()
	n.closed = true
	n.mu.Unlock()
	n.proxy.DropConnections()
	n.proxy.Close()
}
