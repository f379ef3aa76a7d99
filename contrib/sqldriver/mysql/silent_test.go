package mysql

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqltest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/internal/mysqltest"
	"github.com/dlock-go/dlock/internal/testenv"
)

func TestSilentConnection(t *testing.T) {
	sqltest.SilentConnection(t, connectSilent, func(name string) string { return hex.EncodeToString([]byte(name)) }, addDead)
}

func addDead(s driver.Session) error {
	st := s.(*session.Session).Store().(*store)
	dead := &store{connector: st.connector, Pool: st.Pool, id: "dead", database: st.database}
	_, err := dead.Begin(context.Background(), 0)
	if err == nil {
		_, err = dead.Do(context.Background(), session.Change{Queue: "queue", Prefix: "a-W-", Data: []byte("dead")})
	}
	return err
}

func TestForgottenConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for time limits of connections")
	}
	t.Parallel()
	sqltest.ForgottenConnections(t, connectSilent)
}

func connectSilent(t *testing.T) (driver.Session, *sqltest.Silence) {
	server := mysqltest.Shared(t)
	c, err := Driver{}.OpenConnector(server.DSN(server.Database(), "session_timeout=8s"))
	require.NoError(t, err)
	silence := sqltest.NewSilence(t, server.Addr())
	c.(*connector).config.DialFunc = silence.Dial
	s, err := c.Connect(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s, silence
}

func TestConnectingHasATimeLimit(t *testing.T) {
	sqltest.SilentConnect(t, func(ctx context.Context, dial sqltest.Dial) error {
		c, err := Driver{}.OpenConnector("dlock@tcp(127.0.0.1)/locks")
		require.NoError(t, err)
		c.(*connector).config.DialFunc = dial
		_, err = c.Connect(ctx)
		return err
	})
}

func TestTheErrorOfASilentServerSaysWhere(t *testing.T) {
	connect := func(ctx context.Context, dsn string, dial sqltest.Dial) error {
		c, err := Driver{}.OpenConnector(dsn)
		require.NoError(t, err)
		c.(*connector).config.DialFunc = dial
		_, err = c.Connect(ctx)
		return err
	}
	for _, tls := range []string{"", "?tls=true"} {
		sqltest.SilentServer(t, func(ctx context.Context, addr string, dial sqltest.Dial) error {
			return connect(ctx, "dlock:"+secret+"@tcp("+addr+")/locks"+tls, dial)
		}, sqltest.Refusal{Unavailable: true, Texts: []string{"no answer from ", " in the handshake: "}, Secrets: secrets})
	}

	server := mysqltest.Shared(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	silence := sqltest.NewSilence(t, server.Addr())
	silence.Begin("SHOW VARIABLES")
	go func() { <-silence.Held; cancel() }()
	err := connect(ctx, server.DSN(server.Database()), silence.Dial)
	if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "no answer from "+server.Addr()+": ") {
		t.Errorf("error %v", err)
	}
}

// The connection falls silent between the last row and the end of the reply.
func TestReplyWithoutItsEnd(t *testing.T) {
	server := mysqltest.Shared(t)
	c, err := Driver{}.OpenConnector(server.DSN(server.Database(), "session_timeout=8s"))
	require.NoError(t, err)
	var armed atomic.Bool
	c.(*connector).config.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		var dialer net.Dialer
		conn, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { conn.Close() })
		return &endlessConn{Conn: conn, armed: &armed}, nil
	}
	s, err := c.Connect(t.Context())
	require.NoError(t, err)
	_, err = s.List(t.Context(), "queue")
	require.NoError(t, err)
	armed.Store(true)
	listed := make(chan error, 1)
	go func() {
		_, err := s.List(context.Background(), "queue")
		listed <- err
	}()
	err, _ = testenv.Receive(t, listed, "List returns although the end of the reply never comes")
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.NoError(t, s.Close())
}

// endlessConn withholds the last packet of one reply to dlock_look.
type endlessConn struct {
	net.Conn
	armed    *atomic.Bool
	lookSent atomic.Bool
	rowsEnd  bool   // all rows of the reply have arrived
	rest     []byte // received but not yet returned by Read
}

func (c *endlessConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("dlock_look")) && c.armed.CompareAndSwap(true, false) {
		c.lookSent.Store(true)
	}
	return c.Conn.Write(b)
}

// Read reads whole packets: length, sequence number, content.
func (c *endlessConn) Read(b []byte) (int, error) {
	if len(c.rest) == 0 {
		packet := make([]byte, 4)
		if _, err := io.ReadFull(c.Conn, packet); err != nil {
			return 0, err
		}
		content := make([]byte, int(packet[0])|int(packet[1])<<8|int(packet[2])<<16)
		if _, err := io.ReadFull(c.Conn, content); err != nil {
			return 0, err
		}
		if c.lookSent.Load() && c.rowsEnd && content[0] == 0x00 { // OK
			return c.Conn.Read(b) // blocks until the connection is closed
		}
		c.rowsEnd = c.lookSent.Load() && content[0] == 0xFE // EOF
		c.rest = append(packet, content...)
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}
