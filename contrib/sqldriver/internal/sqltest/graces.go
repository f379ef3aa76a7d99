package sqltest

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/testenv"
)

// Graces checks that the longest grace of any session applies to all, as long
// as that session exists. The function database creates a database. The
// statement lose makes the data look as if they came from another server. The
// query rest returns how many seconds of the grace are left.
func Graces(t *testing.T, d driver.Driver, database func() (dsn func(...string) string, query func(string) string), lose, rest string) {
	for closed, want := range map[bool]float64{false: 3600, true: 10} {
		dsn, query := database()
		connect := func(params ...string) driver.Session {
			return testenv.Session(t, d, dsn(append(params, "session_timeout=10s")...))
		}
		long := connect("grace=1h")
		if closed {
			if err := long.Close(); err != nil {
				t.Fatal(err)
			}
		}
		connect()
		query(lose)
		c, err := d.OpenConnector(dsn("session_timeout=10s"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Connect(ctx); err == nil {
			t.Fatal("a session has begun although the data may be old")
		}
		left, err := strconv.ParseFloat(query(rest), 64)
		if err != nil || left > want || left < want-10 {
			t.Errorf("the session with a grace of an hour was closed: %v; %v s are left of the grace, want %v (%v)", closed, left, want, err)
		}
	}
}
