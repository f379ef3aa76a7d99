package mysql

import (
	"encoding/hex"
	"testing"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqltest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/mysqltest"
)

func TestSilentConnection(t *testing.T) {
	server := mysqltest.Shared(t)
	sqltest.SilentConnection(t, func(t *testing.T, silence *sqltest.Silence) driver.Session {
		c, err := Driver{}.OpenConnector(server.DSN(server.Database(), "session_timeout=8s"))
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
	}, func(name string) string { return hex.EncodeToString([]byte(name)) })
}
