package zkconn

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/stretchr/testify/require"
)

// feed is a connection on which the server sends the given bytes.
type feed struct {
	net.Conn
	in     io.Reader
	sent   int
	closed bool
}

func (f *feed) Read(p []byte) (int, error)      { return f.in.Read(p) }
func (f *feed) Write(p []byte) (int, error)     { f.sent += len(p); return len(p), nil }
func (f *feed) Close() error                    { f.closed = true; return nil }
func (f *feed) SetDeadline(time.Time) error     { return nil }
func (f *feed) SetReadDeadline(time.Time) error { return nil }
func (f *feed) RemoteAddr() net.Addr            { return &net.TCPAddr{} }

func fedConn(in []byte, login bool) (*frameConn, *feed, *dialer) {
	config := testConfig("h:1")
	if login {
		config.Logins = func() [][]byte { return [][]byte{[]byte("u:p")} }
	}
	d := newDialer(config)
	d.onBegin = func(connectReply, driver.Instant) error { return nil }
	d.onResume = func(driver.Instant) error { return nil }
	d.onFail = func(error) {}
	d.onEnd = func(error) {}
	raw := &feed{in: bytes.NewReader(in)}
	c := newFrameConn(raw, d, time.Time{})
	d.install(c)
	c.connectWritten = true
	return c, raw, d
}

func connectReplyFrame(timeout int32, session int64) []byte {
	b := binary.BigEndian.AppendUint32(nil, connectReplySize)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(timeout))
	b = binary.BigEndian.AppendUint64(b, uint64(session))
	b = binary.BigEndian.AppendUint32(b, 16)
	return append(b, make([]byte, 16)...)
}

// FuzzHandshake checks that any reply attaches the session that it names, or
// closes the connection.
func FuzzHandshake(f *testing.F) {
	good := connectReplyFrame(10000, 7)
	f.Add(good, false)
	f.Add(append(bytes.Clone(good), 0, 0, 0, 16, 0xff, 0xff, 0xff, 0xfc, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), true)
	f.Add(append(bytes.Clone(good), 0, 0, 0, 16, 0xff, 0xff, 0xff, 0xfc, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0x8d), true)
	f.Add(connectReplyFrame(0, 7), false)
	f.Add(connectReplyFrame(-1, 0), false)
	f.Add([]byte{0x15, 3, 1, 0, 2, 2, 10}, false)
	f.Add([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"), false)
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff}, false)
	f.Fuzz(func(t *testing.T, in []byte, login bool) {
		c, raw, d := fedConn(in, login)
		defer c.stopTimer()
		got := make([]byte, 4+maxHandshake)
		n, err := c.Read(got)
		if err != nil {
			require.True(t, raw.closed, "a handshake that failed leaves its connection open")
			require.Zero(t, n)
			require.Zero(t, d.sessionID())
			require.ErrorIs(t, d.lastError(), err)
			return
		}
		require.True(t, bytes.HasPrefix(in, got[:n]), "the connect reply was changed")
		require.GreaterOrEqual(t, n, headerSize+connectReplySize)
		require.Equal(t, int64(binary.BigEndian.Uint64(in[headerSize+8:])), d.sessionID())
		require.NotZero(t, d.sessionID())
		require.Positive(t, d.sessionTimeout())
		require.Equal(t, login, raw.sent > 0, "the login goes before everything else")
	})
}

// FuzzReplies checks that replies pass unchanged, up to the first frame of
// impossible length.
func FuzzReplies(f *testing.F) {
	frame := func(xid uint32, n int) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(12+4+n))
		b = binary.BigEndian.AppendUint32(b, xid)
		return append(b, make([]byte, 12+n)...)
	}
	f.Add(append(frame(1, 0), frame(0xfffffffe, 9)...), 5)
	f.Add(append(frame(7, 3), 0, 0, 0, 15, 1, 1, 1, 1), 100)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0}, 1)
	f.Add([]byte{0x10, 0, 0, 1, 0, 0, 0, 0}, 1)
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 1}, 1)
	f.Fuzz(func(t *testing.T, in []byte, chunk int) {
		c, _, d := fedConn(in, false)
		defer c.stopTimer()
		c.handshakeDone = true
		c.closeXid.Store(7)
		buf := make([]byte, 1+(chunk&0xfff))
		var out []byte
		for {
			n, err := c.Read(buf)
			out = append(out, buf[:n]...)
			if err != nil {
				break
			}
		}
		want, closed := frames(in, 7)
		require.Equal(t, want, out)
		require.Equal(t, closed, d.sessionClosed.Load())
	})
}

// frames returns the valid frames, and whether one of them answers xid.
func frames(in []byte, xid uint32) (out []byte, answered bool) {
	out = []byte(nil)
	for len(in) >= 8 {
		length := int32(binary.BigEndian.Uint32(in))
		if length < 16 || length > maxReply {
			break
		}
		answered = answered || binary.BigEndian.Uint32(in[4:]) == xid
		n := min(len(in), 4+int(length))
		out = append(out, in[:n]...)
		in = in[n:]
	}
	return out, answered
}

// FuzzRequests checks that requests pass unchanged, except pings. Only
// SetWatches may overtake delayed requests.
func FuzzRequests(f *testing.F) {
	f.Add([]byte{1, 101, 4, 5}, true)
	f.Add([]byte{11, 12, 101, 101}, true)
	f.Add([]byte{4, 101, 5}, true)
	f.Add([]byte{0, 1}, false)
	f.Fuzz(func(t *testing.T, opcodes []byte, hold bool) {
		opcodes = opcodes[:min(len(opcodes), 500)]
		var out bytes.Buffer
		c, _, _ := fedConn(nil, false)
		c.raw = &recorded{feed{}, &out}
		if hold {
			c.pauseRequests(time.Hour)
		}
		defer c.stopTimer()
		var want, held []byte
		holding := hold
		for i, op := range opcodes {
			b := frame(int32(op), int32(i))
			n, err := c.Write(b)
			require.NoError(t, err)
			require.Equal(t, len(b), n)
			switch {
			case op == opPing:
			case !holding:
				want = append(want, b...)
			case op == opSetWatches:
				want = append(append(want, b...), held...)
				holding = false
			default:
				held = append(held, b...)
			}
		}
		require.Equal(t, string(want), out.String())
		_, err := c.Write(make([]byte, len(opcodes)%12))
		require.Error(t, err, "a request without a header")
	})
}

type recorded struct {
	feed
	out *bytes.Buffer
}

func (r *recorded) Write(p []byte) (int, error) { return r.out.Write(p) }
