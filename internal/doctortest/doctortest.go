// Package doctortest helps to test the Check method of a driver.
package doctortest

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

const bound = time.Minute

// Findings are what a driver's Check method has returned.
type Findings []driver.Finding

// Run calls the Check method of a connector, which must succeed, and returns
// the findings. It fails the test if a finding contains [Password].
func Run(t testing.TB, c driver.Connector) (found Findings) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	found, err := c.(driver.Checker).Check(ctx)
	require.NoError(t, err)
	for _, f := range found {
		assert.NotEmpty(t, f.Text)
		assert.Equal(t, f.Level == driver.OK, f.Advice == "", "%v", f)
		assert.NotContains(t, f.Text+f.Advice, Password)
	}
	return found
}

// Check calls [Run] for a data source name.
func Check(t testing.TB, d driver.Driver, dsn string) Findings {
	t.Helper()
	c, err := d.OpenConnector(dsn)
	require.NoError(t, err)
	return Run(t, c)
}

// Password is the password to use in the data source names of tests. No finding
// may contain it.
const Password = "geheim"

// Has fails the test if no finding has the given level, with the given text and
// advice as parts of its Text and Advice.
func (f Findings) Has(t testing.TB, level driver.Level, text, advice string) {
	t.Helper()
	for _, found := range f {
		if found.Level == level && strings.Contains(found.Text, text) && strings.Contains(found.Advice, advice) {
			return
		}
	}
	assert.Fail(t, "no such finding", "%v, %q, %q\namong %v", level, text, advice, f)
}

// Healthy requires that all findings are OK.
func (f Findings) Healthy(t testing.TB) {
	t.Helper()
	require.NotEmpty(t, f)
	for _, found := range f {
		assert.Equal(t, driver.OK, found.Level, "%v", found)
	}
}

// Listen accepts connections and calls serve for each, until the test ends. It
// returns the address.
func Listen(t testing.TB, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			go func() {
				defer stop()
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		cancel()
		<-ended
	})
	return l.Addr().String()
}
