package sqltest

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqlstore"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/doctortest"
	"github.com/dlock-go/dlock/internal/testenv"
)

// CheckOfOthers checks that doctor reports another client's longer grace, and
// the oldest open transaction. The statement snapshot begins that transaction,
// which must be the only one. The query who returns the ID of its connection.
func CheckOfOthers(t *testing.T, d driver.Driver, dsn func(params ...string) string, db *sql.DB, snapshot, who string) {
	_, err := testenv.Connect(t, d, dsn("session_timeout=10s", "grace=1h"))
	require.NoError(t, err)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), snapshot)
	require.NoError(t, err)
	var id int64
	require.NoError(t, conn.QueryRowContext(t.Context(), who).Scan(&id))
	old := sqlstore.LongOpen
	sqlstore.LongOpen = 0
	defer func() { sqlstore.LongOpen = old }()
	c, err := d.OpenConnector(dsn("session_timeout=10s"))
	require.NoError(t, err)
	doctortest.Run(t, c).Has(t, driver.Warning, "a grace of 1h0m0s", "the same parameter grace")
	require.Eventually(t, func() bool { // Check may report another transaction of that second
		found, err := c.(driver.Checker).Check(t.Context())
		return err == nil && strings.Contains(fmt.Sprint(found), fmt.Sprintf("connection %d has a transaction", id))
	}, time.Minute, 100*time.Millisecond)
}
