package redisdriver

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/internal/redistest"
)

// A timeout between the halves would lose the first, and go-redis would panic.
func TestANoticeMayStopInTheMiddle(t *testing.T) {
	const notice = "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$24\r\nr/h-W-0000000001/1-ab/*0\r\n"
	for _, protocol := range []string{"2", "3"} {
		for _, first := range []string{"*3\r\n$7\r\nmess", "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$24\r\nr/h-W-0000000001/"} {
			t.Run(fmt.Sprintf("%s/%d", protocol, len(first)), func(t *testing.T) {
				t.Parallel()
				settings, err := parseDSN("redis://" + serveNotice(t, first, strings.TrimPrefix(notice, first)) + "?session_timeout=8s&protocol=" + protocol)
				require.NoError(t, err)
				b := noticesOnly{&backend{settings: settings, link: newLink(settings)}}
				b.first, err = b.subscribe(t.Context())
				require.NoError(t, err)
				s, err := session.Connect(t.Context(), b, session.Config{Timeout: settings.timeout, Server: b.link.address})
				require.NoError(t, err)
				defer s.Close()
				w, err := s.Watch(t.Context(), "*0", driver.Place{Node: driver.Node{Name: "h-W-0000000002"}}, driver.Node{Name: "h-W-0000000001"})
				require.NoError(t, err)
				assert.Equal(t, driver.Released, <-w.C)
			})
		}
	}
}

// noticesOnly is a backend whose server does nothing but send notices.
type noticesOnly struct{ *backend }

func (n noticesOnly) Begin(context.Context, time.Duration) (session.Begun, error) {
	return session.Begun{}, nil
}

func (n noticesOnly) Beat(context.Context) (time.Duration, error) { return n.timeout, nil }

func (n noticesOnly) Subscribe(context.Context, session.Query) (session.Snapshot, error) {
	return session.Snapshot{Nodes: []session.Node{{Name: "h-W-0000000001", Proof: "1-ab"}, {Name: "h-W-0000000002"}}}, nil
}

func (n noticesOnly) Look(ctx context.Context, ask []session.Query) ([]session.Snapshot, error) {
	now, err := n.Subscribe(ctx, ask[0])
	return []session.Snapshot{now}, err
}

func (n noticesOnly) End(context.Context) error {
	n.link.close()
	return nil
}

// A client that guesses another's proof could forge a release.
func TestNobodyCanGuessAProof(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	proofs := make(map[string]bool)
	for range 2 {
		made := s.session()
		for range 2 {
			_, err := made.Create(t.Context(), "stock/42", driver.NodeSpec{Prefix: "web-W-"}) // no data
			require.NoError(t, err)
		}
	}
	for _, m := range s.server.Do("ZRANGE", s.key("q:stock/42"), "0", "-1").([]any) {
		_, random, _ := strings.Cut(parseMember(m.(string)).operation, "-")
		require.Len(t, random, 16)
		proofs[random] = true
	}
	require.Len(t, proofs, 4)
}

// serveNotice sends a notice in two parts, separated by the client's ping.
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
