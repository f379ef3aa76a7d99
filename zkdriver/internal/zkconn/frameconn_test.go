package zkconn

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func frame(opcode int32, xid int32) []byte {
	b := binary.BigEndian.AppendUint32(nil, 8)
	b = binary.BigEndian.AppendUint32(b, uint32(xid))
	return binary.BigEndian.AppendUint32(b, uint32(opcode))
}

// newPair returns a frameConn after its handshake, and the server's end.
func newPair(t *testing.T) (*frameConn, net.Conn) {
	here, there := net.Pipe()
	t.Cleanup(func() { here.Close(); there.Close() })
	// Without a deadline, a test would hang in a write that nobody reads.
	here.SetDeadline(time.Now().Add(bound))
	there.SetDeadline(time.Now().Add(bound))
	c := newFrameConn(here, newDialer(testConfig("h:1")), time.Now().Add(bound))
	c.connectWritten, c.handshakeDone = true, true
	t.Cleanup(c.stopTimer)
	return c, there
}

func TestRequestsDoNotWaitLongForWatchesThatAreNotThere(t *testing.T) {
	c, there := newPair(t)
	c.pauseRequests(maxRequestPause)
	c.Write(frame(4, 1))
	got := make([]byte, 12)
	_, err := io.ReadFull(there, got)
	require.NoError(t, err)
	require.Equal(t, frame(4, 1), got)
}

func TestWriteErrorShowsWhenReading(t *testing.T) {
	c, there := newPair(t)
	there.Close()
	n, err := c.Write(frame(4, 1))
	require.NoError(t, err)
	require.Equal(t, 12, n)
	_, err = c.Read(make([]byte, 4))
	require.Error(t, err)
}

// go-zookeeper accesses the last zxid without a lock, so it must see no zxids.
func TestRequestsNameTheLastZxidAndGoZookeeperSeesNone(t *testing.T) {
	c, there := newPair(t)
	go func() {
		for _, zxid := range []uint64{7, 0} { // an error reply has zxid 0
			b := binary.BigEndian.AppendUint32(nil, 16)
			b = binary.BigEndian.AppendUint32(b, 1)
			b = binary.BigEndian.AppendUint64(b, zxid)
			there.Write(append(b, 0, 0, 0, 0))
		}
	}()
	for range 2 {
		reply := make([]byte, 20)
		_, err := io.ReadFull(c, reply)
		require.NoError(t, err)
		require.Equal(t, append(binary.BigEndian.AppendUint32(nil, 16), 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), reply)
	}

	expectZxid := func(c *frameConn, there net.Conn, request []byte, at int) {
		sent := slices.Clone(request)
		go c.Write(request)
		got := make([]byte, len(request))
		_, err := io.ReadFull(there, got)
		require.NoError(t, err)
		require.EqualValues(t, 7, binary.BigEndian.Uint64(got[at:]))
		require.Equal(t, sent, request, "the request belongs to go-zookeeper")
	}
	setWatches := append(frame(opSetWatches, 2), make([]byte, 8)...)
	expectZxid(c, there, setWatches, setWatchesZxid)
	here, next := net.Pipe()
	defer here.Close()
	again := newFrameConn(here, c.owner, time.Now().Add(bound))
	expectZxid(again, next, make([]byte, 44), connectZxid)
	c.owner.lastZxid().Store(8) // as if another request had been answered first
	expectZxid(again, next, setWatches, setWatchesZxid)
}

func TestConfirmedEndOfTheSessionIsNoticed(t *testing.T) {
	c, there := newPair(t)
	go func() {
		io.ReadFull(there, make([]byte, 12))
		for _, xid := range []int32{-2, 7} {
			b := binary.BigEndian.AppendUint32(nil, 16)
			b = binary.BigEndian.AppendUint32(b, uint32(xid))
			there.Write(append(b, make([]byte, 12)...))
		}
	}()
	c.Write(frame(opClose, 7))
	for _, confirmed := range []bool{false, true} {
		_, err := io.ReadFull(c, make([]byte, 4))
		require.NoError(t, err)
		require.Equal(t, confirmed, c.owner.(*dialer).sessionClosed.Load())
		_, err = io.ReadFull(c, make([]byte, 16))
		require.NoError(t, err)
	}
}
