package mysql

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/driver"
)

// A killed procedure leaves its transaction open, because its error handlers do
// not run.
func TestKilledAppendKeepsNoRows(t *testing.T) {
	c := newCaseWith(t, "session_timeout=20s")
	s, other := newSession(t, c), newSession(t, c)
	all := statements()
	i := slices.IndexFunc(all, func(text string) bool { return strings.Contains(text, "PROCEDURE IF NOT EXISTS dlock_append") })
	const insert = "INSERT INTO dlock_node"
	c.Exec(t, "DROP PROCEDURE dlock_append")
	slow := "IF p_data = 'slow' THEN DO GET_LOCK(DATABASE(), 0); WHILE TRUE DO SET v_status = 'ok'; END WHILE; END IF;\n"
	c.Exec(t, strings.Replace(all[i], insert, slow+insert, 1))
	created := make(chan error, 1)
	go func() {
		_, err := s.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-", Data: []byte("slow")})
		created <- err
	}()
	var id string
	eventually(t, "the append does not run", func() bool {
		id = c.server.SQL(t, "", "SELECT IS_USED_LOCK('"+c.database+"')")
		return id != "NULL"
	})
	c.server.SQL(t, "", "KILL QUERY "+id)
	if err := <-created; !errors.Is(err, driver.ErrUnavailable) || number(err) != 1317 {
		t.Errorf("error %v", err)
	}
	j := create(t, other, "q")
	eventually(t, "the node of the append is there", func() bool {
		nodes, err := other.List(t.Context(), "q")
		return err == nil && slices.Equal(nodes, []driver.Node{j.Node})
	})
}

// If a server hides its uptime, the driver can't notice that it has restarted.
func TestAServerThatHidesItsUptimeIsRefused(t *testing.T) {
	c := newCaseWith(t, "session_timeout=20s")
	newSession(t, c)
	all := statements()
	i := slices.IndexFunc(all, func(text string) bool { return strings.Contains(text, "PROCEDURE IF NOT EXISTS dlock_here") })
	c.Exec(t, "DROP PROCEDURE dlock_here")
	c.Exec(t, strings.NewReplacer("'UPTIME'", "'NONE'", "'Uptime'", "'NONE'").Replace(all[i]))
	connector, err := Driver{}.OpenConnector(c.server.DSN(c.database))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := connector.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "uptime") {
		t.Errorf("error %v", err)
	}
}
