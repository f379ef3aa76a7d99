package redisdriver

import (
	"bufio"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

// The two halves of a message may arrive far apart. If a read timed out between
// them, the first half would be lost and go-redis would panic on the second.
func TestANoticeMayStopInTheMiddle(t *testing.T) {
	const notice = "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$19\r\nr/h-W-0000000001/*0\r\n"
	for _, protocol := range []string{"2", "3"} {
		for _, first := range []string{"*3\r\n$7\r\nmess", "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$19\r\nr/h-W-0000000001/"} {
			t.Run(fmt.Sprintf("%s/%d", protocol, len(first)), func(t *testing.T) {
				t.Parallel()
				settings, err := parseDSN("redis://" + serveNotice(t, first, strings.TrimPrefix(notice, first)) + "?empty_is_new=true&session_timeout=2s&protocol=" + protocol)
				require.NoError(t, err)
				s := &session{settings: settings, lease: driver.NewLease(time.Minute, 0), link: newLink(settings)}
				defer s.link.close()
				s.notices.watches = &s.watches
				w := s.watches.Arm("*0", driver.Place{Node: driver.Node{Name: "h-W-0000000002"}}, driver.Node{Name: "h-W-0000000001"})

				p, err := s.subscribe(t.Context())
				require.NoError(t, err)
				var receiving sync.WaitGroup
				receiving.Go(func() { s.receive(p) })
				assert.Equal(t, driver.Released, <-w.C)
				require.NoError(t, p.Close())
				receiving.Wait()
			})
		}
	}
}

// serveNotice starts a fake Redis server that sends a notice in two parts, with
// a long pause between them. It sends the second part when the client pings,
// which a client does only after a long silence.
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
		array, last := "*", ""
		for lines := bufio.NewScanner(conn); lines.Scan(); last = strings.ToLower(lines.Text()) {
			switch text := strings.ToLower(lines.Text()); {
			case last == "$1" && text == "2":
				fmt.Fprintf(conn, "*2\r\n$5\r\nproto\r\n:2\r\n")
			case last == "$1" && text == "3":
				array = ">"
				fmt.Fprintf(conn, "%%1\r\n$5\r\nproto\r\n:3\r\n")
			case text == "subscribe":
				fmt.Fprintf(conn, "%s3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n", array)
				fmt.Fprint(conn, strings.Replace(first, "*", array, 1))
			case text == "ping":
				fmt.Fprint(conn, second)
			}
		}
	})
	return l.Addr().String()
}
