package redistest

import (
	"bufio"
	"bytes"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/dlock-go/dlock/internal/testenv"
)

// Proxy is a proxy in front of a Redis server. It understands the Redis
// protocol, versions 2 and 3, and can count, lose and hold individual requests
// and replies. Other bytes, such as TLS, are passed through.
type Proxy struct {
	*testenv.Proxy
	classify func(command []string) int32

	mu      sync.Mutex
	capture *capture
	keep    bool
	kept    [][]string
	silence int // number of calls of SilenceSubscriptions
}

// capture stores the next request that matches, so that it can be sent later.
type capture struct {
	match   func(op int32) bool
	request []byte
}

// NewProxy returns a proxy for target. classify maps a command to an operation,
// by which methods such as LoseRequest select requests. The proxy is closed
// when the test ends and leaves no goroutines.
func NewProxy(t testing.TB, target string, classify func(command []string) int32) *Proxy {
	t.Helper()
	p := &Proxy{classify: classify}
	p.Proxy = testenv.NewProxy(t, target, p.protocol)
	return p
}

func (p *Proxy) Keep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keep, p.kept = true, nil
}

// Commands returns the commands sent by clients since [Proxy.Keep].
func (p *Proxy) Commands() [][]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([][]string(nil), p.kept...)
}

// HoldRequest drops the next matching request, like LoseRequest, but keeps a
// copy. Calling arrive sends the copy to the server on a new connection and
// waits for the reply. If no request has matched, arrive is a no-op.
func (p *Proxy) HoldRequest(match func(op int32) bool) (arrive func()) {
	c := &capture{match: match}
	p.mu.Lock()
	p.capture = c
	p.mu.Unlock()
	p.LoseRequest(match)
	return func() {
		p.mu.Lock()
		request := c.request
		p.mu.Unlock()
		if request != nil {
			_, _ = send(p.Target(), request) // the server may reject the request
		}
	}
}

// SilenceSubscriptions makes current subscribers receive nothing more, without
// an error. Connections that subscribe later are not affected.
func (p *Proxy) SilenceSubscriptions() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silence++
}

// subscription tracks whether a connection has subscribed to messages.
type subscription struct {
	begun bool
	since int // value of Proxy.silence when the client subscribed
}

// protocol numbers requests and replies, which match because Redis replies in
// order.
func (p *Proxy) protocol() (requests, replies testenv.FrameReader) {
	var sent, answered counter
	var sub subscription // guarded by p.mu
	return reader(func(bytes []byte, value any) testenv.Frame {
			command := texts(value)
			f := testenv.Frame{Bytes: bytes, Kind: testenv.Request, Op: p.classify(command), ID: sent.next()}
			p.see(f, command, &sub)
			return f
		}), reader(func(bytes []byte, value any) testenv.Frame {
			if p.silent(&sub) {
				return testenv.Frame{} // forward nothing
			}
			if isMessage(value) {
				return testenv.Frame{Bytes: bytes, Kind: testenv.Event}
			}
			return testenv.Frame{Bytes: bytes, Kind: testenv.Reply, ID: answered.next()}
		})
}

func (p *Proxy) silent(sub *subscription) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return sub.begun && p.silence > sub.since
}

func (p *Proxy) see(f testenv.Frame, command []string, sub *subscription) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !sub.begun && len(command) > 0 && strings.EqualFold(command[0], "subscribe") {
		*sub = subscription{begun: true, since: p.silence}
	}
	if p.keep {
		p.kept = append(p.kept, command)
	}
	if p.capture != nil && p.capture.match(f.Op) {
		p.capture.request = bytes.Clone(f.Bytes)
		p.capture = nil
	}
}

type counter int64

func (c *counter) next() int64 {
	*c++
	return int64(*c)
}

func reader(frame func(bytes []byte, value any) testenv.Frame) testenv.FrameReader {
	var buffered *bufio.Reader
	return func(r io.Reader) (testenv.Frame, error) {
		if buffered == nil {
			buffered = bufio.NewReader(r)
		}
		var raw bytes.Buffer
		value, err := readValue(buffered, &raw, 0)
		if err == testenv.ErrOtherProtocol {
			rest, _ := buffered.Peek(buffered.Buffered())
			raw.Write(rest)
		}
		if err != nil {
			return testenv.Frame{Bytes: raw.Bytes()}, err
		}
		return frame(raw.Bytes(), value), nil
	}
}

func texts(value any) (found []string) {
	values, _ := value.([]any)
	for _, v := range values {
		text, _ := v.(string)
		found = append(found, text)
	}
	return found
}

// isMessage reports whether value was published, as opposed to a reply.
func isMessage(value any) bool {
	t := texts(value)
	return len(t) > 1 && (t[0] == "message" || t[0] == "pmessage" || t[0] == "smessage")
}
