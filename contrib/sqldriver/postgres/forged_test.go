package postgres

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/testenv"
)

// Any user can send notices, so those without the right proof must be ignored.
func TestAForgedNoticeReleasesNothing(t *testing.T) {
	c := newCaseWith(t, "session_timeout=1h")
	holder, waiter := newSession(t, c), newSession(t, c)
	held := mustCreate(t, holder, "held")
	own := mustCreate(t, waiter, "own")
	channel, guest := c.server.SQL(t, "SELECT "+c.schema+".channel('q')"), c.schema+"_guest"
	c.server.SQL(t, "CREATE ROLE "+guest)
	notice := "r\n" + held.Name + "\nq"
	for _, payload := range []string{notice, notice + "\n", notice + "\n" + strings.Repeat("0", 32)} {
		w, err := waiter.Watch(t.Context(), "q", own.Place, held.Node)
		require.NoError(t, err)
		c.server.SQL(t, fmt.Sprintf("SET ROLE %s; NOTIFY %s, '%s'", guest, channel, payload))
		why, open := testenv.Receive(t, w.C, "the watch ends, so that the waiter looks")
		assert.False(t, open, "the notice %q says %v", payload, why)
		w.Stop()
	}
	assert.NoError(t, holder.Delete(t.Context(), "q", held.Place, driver.Released))
}
