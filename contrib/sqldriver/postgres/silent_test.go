package postgres

import (
	"testing"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqltest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/pgtest"
)

func TestSilentConnection(t *testing.T) {
	server := pgtest.Shared(t)
	sqltest.SilentConnection(t, func(t *testing.T, silence *sqltest.Silence) driver.Session {
		c, err := Driver{}.OpenConnector(server.DSN("schema="+server.Schema(), "session_timeout=8s"))
		if err != nil {
			t.Fatal(err)
		}
		c.(*connector).config.DialFunc = silence.Dial
		s, err := c.Connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}, func(name string) string { return name })
}
