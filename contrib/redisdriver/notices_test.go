package redisdriver

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

// A network may deliver the first part of a notice long before the rest. A read that
// gives up in between would lose the first part, and take the rest for a message of
// its own, with which go-redis ends the process.
func TestANoticeMayStopInTheMiddle(t *testing.T) {
	client := redis.NewClient(&redis.Options{
		Addr: serveNotice(t, "r/h-W-0000000001/", "*0"), Protocol: 2, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	defer client.Close()
	settings, err := parseDSN("redis://127.0.0.1?session_timeout=2s")
	require.NoError(t, err)
	s := &session{settings: settings, lease: driver.NewLease(time.Minute, 0), link: newLink(settings)}
	defer s.link.close()
	s.notices.watches = &s.watches
	w := s.watches.Arm("*0", driver.Place{Node: driver.Node{Name: "h-W-0000000002"}}, driver.Node{Name: "h-W-0000000001"})

	p := client.Subscribe(t.Context(), "c")
	var receiving sync.WaitGroup
	receiving.Go(func() { s.receive(p) })
	assert.Equal(t, driver.Released, <-w.C)
	require.NoError(t, p.Close())
	receiving.Wait()
}

// serveNotice starts a server for one subscription. The server sends one notice: the
// first part at once, and the second part when a ping shows that nothing has come for
// long.
func serveNotice(t *testing.T, first, second string) (addr string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	t.Cleanup(func() { l.Close() })
	serving.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			switch strings.ToLower(lines.Text()) {
			case "hello":
				fmt.Fprintf(conn, "-ERR unknown command\r\n")
			case "subscribe":
				fmt.Fprintf(conn, "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n")
				fmt.Fprintf(conn, "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$%d\r\n%s", len(first+second), first)
			case "ping":
				fmt.Fprintf(conn, "%s\r\n", second)
			}
		}
	})
	return l.Addr().String()
}
