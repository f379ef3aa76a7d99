package postgres_test

import (
	"crypto/rand"
	"database/sql"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/contrib/sqldriver/postgres"
	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/pgtest"
)

func TestOurServer(t *testing.T) {
	dsn := os.Getenv("OUR_DSN") // such as postgres://user@host/database?sslmode=verify-full
	if dsn == "" {
		t.Skip("OUR_DSN names no server")
	}
	db, err := sql.Open("pgx", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() }) // after the cleanups below
	dlocktest.Run(t, dlocktest.Config{
		New: func(t *testing.T) driver.Connector {
			schema := "kit_" + strings.ToLower(rand.Text())
			t.Cleanup(func() {
				_, err := db.Exec("DROP SCHEMA IF EXISTS " + schema + " CASCADE")
				require.NoError(t, err)
			})
			c, err := postgres.Driver{}.OpenConnector(dsn + "&empty_is_new=true&session_timeout=5s&schema=" + schema)
			require.NoError(t, err)
			return c
		},
		SessionTimeout: 7 * time.Second, // by then the store has ended a session of 5 s
	})
}

// This test runs TestOurServer, which the page conformance.md shows.
func TestTheKitRunsOnTheServerOfAUser(t *testing.T) {
	server := pgtest.Shared(t)
	kit := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOurServer$/^rule02$", "-test.v")
	kit.Env = append(os.Environ(), "OUR_DSN="+server.DSN())
	out, err := kit.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Regexp(t, `rule 2 \(names\) +checked in part \(7 of 8 cases\)`, string(out))
	require.Equal(t, "0", server.SQL(t, "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'kit\\_%'"))
}
