package zkdriver

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/doctortest"
	"github.com/dlock-go/dlock/internal/testenv"
)

// recorder records what clients send to a server, decrypted.
type recorder struct {
	addr string
	mu   sync.Mutex
	said bytes.Buffer
}

func record(t testing.TB, config *tls.Config, answer []byte) *recorder {
	t.Helper()
	r := &recorder{}
	r.addr = doctortest.Listen(t, func(conn net.Conn) {
		if config != nil {
			conn = tls.Server(conn, config)
		}
		conn.Write(answer)
		io.Copy(r, conn)
	})
	return r
}

func recordTLS(t testing.TB, certificate testenv.Pair) *recorder {
	t.Helper()
	return record(t, &tls.Config{Certificates: []tls.Certificate{certificate.Load(t)}}, sessionReply(time.Minute, 7))
}

func trusting(ca string) string {
	return "?tls=true&tls_ca=" + url.QueryEscape(ca) + "&connect_timeout=2s"
}

func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.said.Write(b)
}

func (r *recorder) heard() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.said.String()
}
