package testenv

import (
	"bufio"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func echoServer(t *testing.T) (addr string) { return recordingServer(t, io.Discard) }

// recordingServer echoes everything, and first writes it to a record.
func recordingServer(t *testing.T, record io.Writer) (addr string) {
	t.Helper()
	l, err := Listen()
	require.NoError(t, err)
	var done sync.WaitGroup
	done.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			done.Go(func() {
				defer conn.Close()
				io.Copy(conn, io.TeeReader(conn, record))
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		done.Wait()
	})
	return l.Addr().String()
}

// lines is a line-based protocol for tests. The first byte of a client's line
// is the operation. A line from the server that begins with '!' is an event;
// any other line answers the oldest open request.
func lines() (requests, replies FrameReader) {
	read := func(kind Kind) FrameReader {
		var buffered *bufio.Reader
		id := int64(0)
		return func(r io.Reader) (Frame, error) {
			if buffered == nil {
				buffered = bufio.NewReader(r)
			}
			line, err := buffered.ReadBytes('\n')
			if err != nil {
				return Frame{Bytes: line}, err
			}
			id++
			f := Frame{Bytes: line, Kind: kind, Op: int32(line[0]), ID: id}
			if kind == Reply && line[0] == '!' {
				f.Kind = Event
			}
			return f, nil
		}
	}
	return read(Request), read(Reply)
}

type client struct {
	t testing.TB
	net.Conn
	in *bufio.Reader
}

func dialProxy(t testing.TB, p *Proxy) *client {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
	return &client{t, conn, bufio.NewReader(conn)}
}

func (c *client) send(line string) {
	c.t.Helper()
	_, err := io.WriteString(c, line+"\n")
	require.NoError(c.t, err)
}

func (c *client) requireReply(line string) {
	c.t.Helper()
	got, err := c.in.ReadString('\n')
	require.NoError(c.t, err)
	require.Equal(c.t, line+"\n", got)
}

func TestProxyWithoutAProtocolForwardsBytes(t *testing.T) {
	p := NewProxy(t, echoServer(t), nil)
	c := dialProxy(t, p)
	c.send("a")
	c.requireReply("a")
	require.Empty(t, p.Counts())
	require.Equal(t, 1, p.Connections())
}

func TestProxyCountsRequestsOfItsProtocol(t *testing.T) {
	p := NewProxy(t, echoServer(t), lines)
	c := dialProxy(t, p)
	for _, line := range []string{"a", "b", "a"} {
		c.send(line)
		c.requireReply(line)
	}
	require.Equal(t, map[int32]int{'a': 2, 'b': 1}, p.Counts())
}

func TestALostRequestOrReplyClosesTheConnection(t *testing.T) {
	match := func(op int32) bool { return op == 'b' }
	for reaches, lose := range map[string]func(p *Proxy) <-chan struct{}{
		"a\n":    func(p *Proxy) <-chan struct{} { return p.LoseRequest(match) },
		"a\nb\n": func(p *Proxy) <-chan struct{} { return p.LoseReply(match) },
	} {
		read, record := io.Pipe()
		p := NewProxy(t, recordingServer(t, record), lines)
		lost := lose(p)
		c := dialProxy(t, p)
		c.send("a")
		arrived := make([]byte, len(reaches))
		_, err := io.ReadFull(read, arrived[:2])
		require.NoError(t, err)
		c.requireReply("a")
		c.send("b")
		_, err = io.ReadFull(read, arrived[2:])
		require.NoError(t, err)
		require.Equal(t, reaches, string(arrived))
		<-lost
		_, err = c.in.ReadByte()
		require.Error(t, err)
		c = dialProxy(t, p)
		c.send("b")
		_, err = io.ReadFull(read, arrived[:2]) // blocks, and reads what arrived before
		require.NoError(t, err)
		require.Equal(t, "b\n", string(arrived[:2]))
		c.requireReply("b")
		c.send("c")
		_, err = io.ReadFull(read, arrived[:2])
		require.NoError(t, err)
		require.Equal(t, "c\n", string(arrived[:2]), "the lost request has arrived all the same")
	}
}

func TestHeldReplyKeepsTheOrder(t *testing.T) {
	p := NewProxy(t, echoServer(t), lines)
	hold := p.HoldReplies(func(op int32) bool { return op == 'a' })
	c := dialProxy(t, p)
	c.send("a")
	c.send("b")
	<-hold.Held()
	hold.Release()
	c.requireReply("a")
	c.requireReply("b")
}

func TestOtherFramesOvertakeHeldEvents(t *testing.T) {
	p := NewProxy(t, echoServer(t), lines)
	hold := p.HoldEvents()
	c := dialProxy(t, p)
	c.send("!event")
	<-hold.Held()
	c.send("a")
	c.requireReply("a")
	hold.Release()
	c.requireReply("!event")
}
