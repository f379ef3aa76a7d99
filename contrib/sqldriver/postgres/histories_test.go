package postgres

import (
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/history"
	"github.com/dlock-go/dlock/internal/pgtest"
)

func TestHistoriesAreLinearizable(t *testing.T) {
	if testing.Short() {
		t.Skip("records histories")
	}
	server := pgtest.Start(t)
	history.Run(t, history.Store{
		Of: "postgres",
		Config: conformance(func(t *testing.T) driver.Connector {
			c := newCaseOn(t, server)
			c.Outages = true
			return c
		}),
		Outage: func(*testing.T) (mend func()) {
			server.Kill()
			return server.Restart
		},
		Histories: 1,
	})
}
