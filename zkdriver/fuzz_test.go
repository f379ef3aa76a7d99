package zkdriver

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

// FuzzEnvelope: what was sealed is opened again, and what was not is left alone.
func FuzzEnvelope(f *testing.F) {
	f.Add([]byte("data"), int64(7), int64(1700000000000))
	f.Add([]byte("\n#dlock token=1 created=2"), int64(0), int64(0))
	f.Add([]byte("x\n#dlock token=1 created=2\n#dlock token=3 created=4"), int64(1), int64(0))
	f.Add([]byte("\n#dlock token=-1 created=2"), int64(1<<62), int64(-1))
	f.Add([]byte("\n#dlock token=01 created=+2"), int64(1), int64(1))
	f.Add([]byte("\n#dlock token="), int64(1), int64(1))
	f.Add([]byte("x\n#dlock guarded"), int64(1), int64(1))
	f.Add([]byte("\n#dlock guarded "), int64(1), int64(1))
	f.Fuzz(func(t *testing.T, data []byte, token, created int64) {
		before := bytes.Clone(data)
		stored := withTrailer(data, false)
		require.LessOrEqual(t, len(stored), len(data)+len(trailer{}.text()))
		got, e, _ := splitTrailer(stored)
		require.Equal(t, data, got)
		require.Zero(t, e, "a new node's Stat says which token it is")
		got, e, _ = splitTrailer(withTrailer(data, true))
		require.Equal(t, data, got)
		require.Equal(t, trailer{guarded: true}, e)

		want := trailer{token: max(token, 0), created: max(created, 0)}
		resealed := appendTrailer(data, want)
		got, e, marked := splitTrailer(resealed)
		require.True(t, marked)
		require.Equal(t, want, e)
		require.Equal(t, data, got)

		inner, e, marked := splitTrailer(data) // of a node that anybody may have written
		require.True(t, bytes.HasPrefix(data, inner))
		if marked {
			require.Equal(t, data, appendTrailer(inner, e))
			require.False(t, e.token < 0 || e.created < 0)
		} else {
			require.Equal(t, data, inner)
			require.Zero(t, e)
		}
		require.Equal(t, before, data, "it belongs to the caller")
	})
}

// FuzzPath: the path of a queue and a name is taken apart again, and the server takes it.
func FuzzPath(f *testing.F) {
	f.Add("", "stock/42", "web1-W-0000000007")
	f.Add("/locks", "zookeeper", "x")
	f.Add("/a/b", "\U0001F600", "..")
	f.Add("/", "a\u200bb", "a\x7f")
	f.Add("/a-0000000001", "orders-1234567890/x~/1234567890~", "x-0000000001")
	f.Fuzz(func(t *testing.T, chroot, queue, name string) {
		s := &settings{}
		if root, err := parseChroot(chroot); err == nil && strings.HasPrefix(chroot, "/") {
			s.chroot = root
		}
		if err := s.checkQueue(queue); err != nil {
			require.ErrorIs(t, err, driver.ErrBadName)
			return
		}
		require.NoError(t, driver.CheckQueue(queue), "what the contract refuses is refused")
		path := s.queuePath(queue)
		serverTakes(t, path)
		if err := checkName(name); err != nil {
			require.ErrorIs(t, err, driver.ErrBadName)
			return
		}
		full := path + "/" + name
		serverTakes(t, full)
		gotQueue, gotName, ok := s.splitPath(full)
		require.True(t, ok)
		require.Equal(t, queue, gotQueue)
		require.Equal(t, name, gotName)
	})
}

// FuzzSegment: a segment and the child that stands for it name each other, and
// the child is no contender.
func FuzzSegment(f *testing.F) {
	for _, s := range []string{"stock", "order-1234567890", "order-1234567890~", "1234567890~~", "~", "0000000001x~", "x-W-0000000001", strings.Repeat("9", 40),
		"x-123456789\uff10"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		child := escapeSegment(s)
		_, contender := sequenceOf(child)
		require.False(t, contender, "%q", child)
		require.Equal(t, s, unescapeSegment(child))
		require.Contains(t, []string{s, s + "~"}, child, "names stay readable")
		if seq, contender := sequenceOf(s); contender {
			require.True(t, strings.HasSuffix(s, fmt.Sprintf("%010d", seq)), "%q", s)
			return
		}
		require.Equal(t, s, escapeSegment(unescapeSegment(s)), "what a list shows leads back to it")
	})
}

// serverTakes is the server's own check of paths, which looks at UTF-16 (PathUtils.validatePath).
func serverTakes(t *testing.T, path string) {
	t.Helper()
	require.True(t, strings.HasPrefix(path, "/") && !strings.HasSuffix(path, "/") && !strings.Contains(path, "//"), "%q", path)
	for _, s := range strings.Split(path, "/") {
		require.NotContains(t, []string{".", ".."}, s)
	}
	for _, c := range utf16.Encode([]rune(path)) {
		bad := c == 0 || c > 0 && c <= 0x1f || c >= 0x7f && c <= 0x9f || c >= 0xd800 && c <= 0xf8ff || c >= 0xfff0
		require.False(t, bad, "%q has %#x", path, c)
	}
}

// feed is a connection on which a stranger has sent some bytes.
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
	s := &settings{hosts: []string{"h:1"}, login: login, user: "u", password: func() string { return "p" }}
	l := newDialer(s, secret{}, nil)
	l.onBegin = func(connectReply, driver.Instant) error { return nil }
	l.onResume = func(driver.Instant) error { return nil }
	l.onEnd = func(error) {}
	l.hasWatches = func() bool { return false }
	raw := &feed{in: bytes.NewReader(in)}
	w := newFrameConn(raw, l, time.Time{})
	l.install(w)
	w.connectWritten = true
	return w, raw, l
}

func connectReplyFrame(timeout int32, session int64) []byte {
	b := binary.BigEndian.AppendUint32(nil, replySize)
	b = binary.BigEndian.AppendUint32(b, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(timeout))
	b = binary.BigEndian.AppendUint64(b, uint64(session))
	b = binary.BigEndian.AppendUint32(b, 16)
	return append(b, make([]byte, 16)...)
}

// FuzzHandshake: whatever a stranger answers to the connect request, the wire either attaches to the
// session that the bytes name, and passes the reply on as it came, or fails and is closed.
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
		w, raw, l := fedConn(in, login)
		defer w.stopTimer()
		got := make([]byte, 4+maxHandshake)
		n, err := w.Read(got)
		if err != nil {
			require.True(t, raw.closed, "a handshake that failed leaves its connection open")
			require.Zero(t, n)
			require.Zero(t, l.sessionID())
			require.ErrorIs(t, l.lastError(), err)
			return
		}
		require.True(t, bytes.HasPrefix(in, got[:n]), "the connect reply was changed")
		require.GreaterOrEqual(t, n, headerSize+replySize)
		require.Equal(t, int64(binary.BigEndian.Uint64(in[headerSize+8:])), l.sessionID())
		require.NotZero(t, l.sessionID())
		require.Positive(t, l.sessionTimeout())
		require.Equal(t, login, raw.sent > 0, "the login goes before everything else")
	})
}

// FuzzReplies: what the wire passes on is a beginning of what came, frames of a sane length only, and it
// takes no more memory than go-zookeeper asks for.
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
	f.Fuzz(func(t *testing.T, in []byte, chunk int) {
		w, _, l := fedConn(in, false)
		defer w.stopTimer()
		w.handshakeDone = true
		w.closeXid.Store(7)
		buf := make([]byte, 1+(chunk&0xfff))
		var out []byte
		for {
			n, err := w.Read(buf)
			out = append(out, buf[:n]...)
			if err != nil {
				break
			}
		}
		want, closed := frames(in, 7)
		require.Equal(t, want, out)
		require.Equal(t, closed, l.sessionClosed.Load())
	})
}

// frames returns the beginning of in that consists of frames, the last of which may be cut off,
// and whether one of them answers the request of that xid.
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

// FuzzRequests: what go-zookeeper writes goes out whole, in order but for the
// watches, held or not. Its pings stay here: the session has heartbeats of its
// own.
func FuzzRequests(f *testing.F) {
	f.Add([]byte{1, 101, 4, 5}, true)
	f.Add([]byte{11, 12, 101, 101}, true)
	f.Add([]byte{0, 1}, false)
	f.Fuzz(func(t *testing.T, opcodes []byte, hold bool) {
		opcodes = opcodes[:min(len(opcodes), 500)]
		var out bytes.Buffer
		w, _, _ := fedConn(nil, false)
		w.raw = &recorded{feed{}, &out}
		if hold {
			w.pauseRequests(time.Hour)
		}
		defer w.stopTimer()
		var want, held []byte
		holding := hold
		for i, op := range opcodes {
			b := frame(int32(op), int32(i))
			n, err := w.Write(b)
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
		_, err := w.Write(make([]byte, len(opcodes)%12))
		require.Error(t, err, "a request without a header")
	})
}

type recorded struct {
	feed
	out *bytes.Buffer
}

func (r *recorded) Write(p []byte) (int, error) { return r.out.Write(p) }
