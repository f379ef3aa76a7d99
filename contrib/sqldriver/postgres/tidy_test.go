package postgres

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

// The test creates more old queues than one call of Tidy removes.
func TestRowsOfOldQueuesAreRemoved(t *testing.T) {
	c := newCaseWith(t, "session_timeout=1h")
	s := newSession(t, c)
	_, err := s.Create(t.Context(), "held", driver.NodeSpec{Prefix: "a-W-", Data: []byte("x")})
	require.NoError(t, err)
	// A queue with a node must be kept, even if both have the same name.
	c.Exec(t, "INSERT INTO dlock.node (queue, name, data) VALUES ('same', 'same', '')")
	queues := c.schema + ".queue"
	c.server.SQL(t, "UPDATE "+queues+" SET changed = now() - interval '25 hours'")
	c.server.SQL(t, "INSERT INTO "+queues+" SELECT 'old' || i, i, now() - interval '25 hours' FROM generate_series(1, 2500) i")
	c.server.SQL(t, "INSERT INTO "+queues+" VALUES ('new', 9999, now())")
	for more := true; more; {
		var err error
		if more, err = s.Requests.Tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	assert.Equal(t, "held,new,same", c.server.SQL(t, "SELECT string_agg(name, ',' ORDER BY name) FROM "+queues))
}
