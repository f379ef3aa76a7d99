package redistest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/leakcheck"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.After(Main(m))) }

func TestTheProxyCountsLosesAndHoldsRequests(t *testing.T) {
	s := Shared(t)
	s.Do("DEL", "held")
	const opSet = 7
	p := NewProxy(t, s.Addr(), func(command []string) int32 {
		if command[0] == "SET" {
			return opSet
		}
		return 0
	})
	set := []byte("*3\r\n$3\r\nSET\r\n$4\r\nheld\r\n$1\r\n1\r\n")
	match := func(op int32) bool { return op == opSet }
	arrive := p.HoldRequest(match)
	_, err := send(p.Addr(), set)
	require.ErrorIs(t, err, io.EOF, "the connection is closed at once")
	require.Nil(t, s.Do("GET", "held"))
	arrive()
	require.Equal(t, "1", s.Do("GET", "held"))
	s.Do("DEL", "held")
	p.LoseReply(match)
	_, err = send(p.Addr(), set)
	require.ErrorIs(t, err, io.EOF, "the connection is closed at once")
	require.Equal(t, "1", s.Do("GET", "held"))
	require.Equal(t, 2, p.Frames(opSet))
	_, err = send(p.Addr(), set)
	require.NoError(t, err, "one request of each is lost")
}

func TestTheProxySilencesTheSubscriptionsThatExist(t *testing.T) {
	s := Shared(t)
	p := NewProxy(t, s.Addr(), func([]string) int32 { return 0 })
	dial := func() *bufio.ReadWriter {
		conn, err := net.Dial("tcp", p.Addr())
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
		return bufio.NewReadWriter(bufio.NewReader(conn), bufio.NewWriter(conn))
	}
	ask := func(c *bufio.ReadWriter, command string) string {
		_, err := c.WriteString(command + "\r\n")
		require.NoError(t, err)
		require.NoError(t, c.Flush())
		value, err := readValue(c.Reader, new(bytes.Buffer), 0)
		require.NoError(t, err)
		return fmt.Sprint(value)
	}
	const subscribe = "*2\r\n$9\r\nSUBSCRIBE\r\n$6\r\nsilent"
	silent, asking := dial(), dial()
	ask(silent, subscribe)
	p.SilenceSubscriptions()
	later := dial()
	ask(later, subscribe)
	require.EqualValues(t, 2, s.Do("PUBLISH", "silent", "x"))
	message, err := readValue(later.Reader, new(bytes.Buffer), 0)
	require.NoError(t, err)
	require.Equal(t, []string{"message", "silent", "x"}, texts(message))
	require.Equal(t, "PONG", ask(asking, "*1\r\n$4\r\nPING"))
	p.DropConnections()
	_, err = silent.ReadByte()
	require.Error(t, err, "a byte has arrived")
}
