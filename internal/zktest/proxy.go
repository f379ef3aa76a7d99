package zktest

import (
	"io"
	"math"
	"sync"
	"testing"

	"github.com/dlock-go/dlock/internal/testenv"
)

// Proxy is a proxy in front of a ZooKeeper server. It understands the client
// protocol and can count, lose and hold individual requests, replies and watch
// events. Other bytes, such as TLS and four-letter words, are passed through.
type Proxy struct {
	*testenv.Proxy

	mu       sync.Mutex
	sessions []Session
}

// NewProxy returns a proxy for targetAddr. It is closed when the test ends and
// leaves no goroutines.
func NewProxy(t testing.TB, targetAddr string) *Proxy {
	t.Helper()
	p := &Proxy{}
	p.Proxy = testenv.NewProxy(t, targetAddr, p.protocol)
	return p
}

// Requests returns the number of requests received from clients, except those
// that begin, keep alive or end a session.
func (p *Proxy) Requests() int {
	sum := 0
	for opcode, n := range p.Counts() {
		if opcode != OpConnect && opcode != OpPing && opcode != OpClose {
			sum += n
		}
	}
	return sum
}

// Sessions returns the servers' replies to connect requests, including those of
// reconnects, oldest first. A rejected session has the ID 0.
func (p *Proxy) Sessions() []Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Session(nil), p.sessions...)
}

const (
	// connectXid is the Frame.ID of a connect request and its reply, which have
	// no xid.
	connectXid = math.MinInt32
	// eventXid is the xid of a watch event.
	eventXid = -1
)

// The first frame in each direction begins a session and has no header.
func (p *Proxy) protocol() (requests, replies testenv.FrameReader) {
	return firstThen(connectRequest, request), firstThen(p.connectReply, replyOrEvent)
}

func firstThen(first, others func(bytes []byte) testenv.Frame) testenv.FrameReader {
	parse := first
	return func(r io.Reader) (testenv.Frame, error) {
		bytes, err := readFrame(r)
		if err != nil {
			return testenv.Frame{Bytes: bytes}, err
		}
		f := parse(bytes)
		parse = others
		return f, nil
	}
}

func connectRequest(bytes []byte) testenv.Frame {
	return testenv.Frame{Bytes: bytes, Kind: testenv.Request, Op: OpConnect, ID: connectXid}
}

func (p *Proxy) connectReply(bytes []byte) testenv.Frame {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sessions = append(p.sessions, parseSession(bytes))
	return testenv.Frame{Bytes: bytes, Kind: testenv.Reply, ID: connectXid}
}

func request(bytes []byte) testenv.Frame {
	return testenv.Frame{Bytes: bytes, Kind: testenv.Request, Op: int32At(bytes, 4), ID: int64(int32At(bytes, 0))}
}

func replyOrEvent(bytes []byte) testenv.Frame {
	f := testenv.Frame{Bytes: bytes, Kind: testenv.Reply, ID: int64(int32At(bytes, 0))}
	if f.ID == eventXid {
		f.Kind = testenv.Event
	}
	return f
}
