package postgres

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqltest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/internal/pgtest"
)

func TestSilentConnection(t *testing.T) {
	sqltest.SilentConnection(t, connectSilent, func(name string) string { return name }, addDead)
}

func addDead(s driver.Session) error {
	st := s.(*session.Session).Store().(*store)
	dead := &store{connector: st.connector, Pool: st.Pool, id: "dead", texts: st.texts, listener: st.listener}
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
	server := pgtest.Shared(t)
	c, err := Driver{}.OpenConnector(server.DSN("schema="+server.Schema(), "session_timeout=8s"))
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
		c, err := Driver{}.OpenConnector("postgres://dlock@127.0.0.1/locks")
		require.NoError(t, err)
		c.(*connector).config.DialFunc = pgconn.DialFunc(dial)
		_, err = c.Connect(ctx)
		return err
	})
}

func TestTheErrorOfASilentServerSaysWhere(t *testing.T) {
	for sslmode, stage := range map[string]string{"disable": "failed to receive message", "prefer": "tls error", "require": "tls error"} {
		sqltest.SilentServer(t, func(ctx context.Context, addr string, dial sqltest.Dial) error {
			c, err := Driver{}.OpenConnector("postgres://dlock:" + secret + "@" + addr + "/locks?sslmode=" + sslmode)
			require.NoError(t, err)
			c.(*connector).config.DialFunc = pgconn.DialFunc(dial)
			_, err = c.Connect(ctx)
			return err
		}, sqltest.Refusal{Unavailable: true, Texts: []string{stage}, Secrets: secrets})
	}
}
