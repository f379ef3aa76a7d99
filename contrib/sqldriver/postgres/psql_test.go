package postgres

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
)

// documented is a store for tests that run statements from two pages of docs.
type documented struct {
	*caseStore
	text string // text of the two pages
}

func newDocumented(t *testing.T) documented {
	d := documented{caseStore: newCaseWith(t, "session_timeout=1h")}
	for _, page := range []string{"contribute/other-languages.md", "stores/postgresql.md"} {
		text, err := os.ReadFile("../../../docs/" + page)
		require.NoError(t, err)
		d.text += string(text)
	}
	return d
}

func (d documented) run(statement string, replace ...string) string {
	d.t.Helper()
	require.Contains(d.t, d.text, "\n"+statement+"\n", "no page contains the statement")
	replace = append(replace, "dlock.", d.schema+".", "10 seconds", "1 hour")
	return d.server.SQL(d.t, strings.NewReplacer(replace...).Replace(statement))
}

const (
	showQueue    = "SELECT name, session, token FROM dlock.node WHERE queue = 'stock/42' ORDER BY token;"
	showSessions = "SELECT id, deadline - now() AS rest FROM dlock.session ORDER BY rest;"
	removeNode   = "DELETE FROM dlock.node WHERE queue = 'stock/42' AND name = 'web1-W-0000000007';"
	beginSession = "SELECT * FROM dlock.begin_session('A7', interval '10 seconds');"
	moveDeadline = "SELECT dlock.beat('A7');"
	appendNode   = "CALL dlock.append('A7', 1, 'stock/42', 'web2-W-', 'A7-1', NULL, NULL, NULL, NULL);"
	countAhead   = "SELECT count(*) FROM dlock.node WHERE queue = 'stock/42' AND token < 42;"
	release      = "CALL dlock.remove('A7', 1, 'stock/42', 42, 'r', NULL);"
	cancel       = "SELECT dlock.cancel('A7', 2, '{A7-1}');"
	endSession   = "SELECT dlock.end_session('A7');"
)

func (d documented) join(replace ...string) string {
	d.t.Helper()
	row := strings.Split(d.run(appendNode, replace...), "|")
	require.Equal(d.t, "ok", row[0])
	return row[1]
}

func (d documented) names() (names []string) {
	d.t.Helper()
	for line := range strings.Lines(d.run(showQueue)) {
		if name, _, found := strings.Cut(line, "|"); found {
			names = append(names, name)
		}
	}
	return names
}

func (d documented) client() *dlock.Client {
	client := dlock.NewClient(d.caseStore)
	d.t.Cleanup(func() { require.NoError(d.t, client.Close()) })
	return client
}

// The holder and the waiter must notice the removal of the holder's node.
func TestPsqlShowsAQueueAndRemovesANode(t *testing.T) {
	t.Parallel()
	d := newDocumented(t)
	client := d.client()
	held, err := client.RWMutex("stock/42").Lock(t.Context())
	require.NoError(t, err)
	granted := make(chan error, 1)
	go func() {
		l, err := client.RWMutex("stock/42").Lock(dlock.WithoutReentry(t.Context()))
		if err == nil {
			err = l.Unlock()
		}
		granted <- err
	}()
	eventually(t, func() bool { return len(d.names()) == 2 })
	require.Equal(t, held.Node(), d.names()[0])

	d.run(removeNode, "web1-W-0000000007", held.Node())
	require.NoError(t, <-granted)
	<-held.Lost()
	require.ErrorIs(t, held.Unlock(), dlock.ErrLost)
	require.Empty(t, d.names())
}

func TestPsqlTakesPart(t *testing.T) {
	t.Parallel()
	d := newDocumented(t)
	client := d.client()
	m := client.RWMutex("stock/42")
	held, err := m.Lock(t.Context())
	require.NoError(t, err)
	d.run(beginSession)
	require.NotEmpty(t, d.run(moveDeadline))
	require.Contains(t, d.run(showSessions), "A7|00:59:")
	token := d.join()
	require.Equal(t, "1", d.run(countAhead, "42", token, "stock/42", "stock/42"))

	require.NoError(t, held.Unlock())
	require.Equal(t, "0", d.run(countAhead, "42", token, "stock/42", "stock/42"))
	_, err = m.TryRLock(t.Context())
	require.ErrorIs(t, err, dlock.ErrLocked)

	granted := make(chan int64, 1)
	go func() {
		if l, err := m.Lock(t.Context()); err == nil {
			granted <- l.Token()
			l.Unlock()
		}
		close(granted)
	}()
	eventually(t, func() bool { return len(d.names()) == 2 })
	require.Empty(t, granted)
	require.Equal(t, "ok", d.run(release, " 42, ", " "+token+", "))
	old, err := strconv.ParseInt(token, 10, 64)
	require.NoError(t, err)
	require.Greater(t, <-granted, old)
	require.Equal(t, "gone", d.run(release, " 42, ", " "+token+", "))
}

// An append that arrives before or after its cancellation must leave no node.
func TestPsqlCancelsAnAppend(t *testing.T) {
	t.Parallel()
	d := newDocumented(t)
	require.NoError(t, d.client().Ping(t.Context()))
	d.run(beginSession)
	d.join()
	require.Equal(t, "ok", d.run(cancel))
	require.Empty(t, d.names())
	require.Contains(t, d.run(appendNode), "stale")
	require.Empty(t, d.names())

	d.join("1,", "2,")
	require.Len(t, d.names(), 1)
	d.run(endSession)
	require.Empty(t, d.names())
	require.Empty(t, d.run(moveDeadline))
}

func TestTheTransactionThatKeepsADeadSessionIsShown(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/stores/postgresql.md")
	require.NoError(t, err)
	_, statements, _ := strings.Cut(string(page), "SELECT DISTINCT pid, ")
	show, end, _ := strings.Cut("SELECT DISTINCT pid, "+statements[:strings.Index(statements, "```")], "\nSELECT pg_terminate_backend")

	d := newDocumented(t)
	require.NoError(t, d.client().Ping(t.Context()))
	tx, err := d.Admin.Begin()
	require.NoError(t, err)
	defer tx.Rollback()
	var pid string
	require.NoError(t, tx.QueryRow("SELECT pg_backend_pid() FROM "+d.schema+".session FOR UPDATE").Scan(&pid))

	pids := func() string { return d.server.SQL(t, strings.ReplaceAll(show, "dlock.", d.schema+".")) }
	require.True(t, strings.HasPrefix(pids(), pid+"|"), pids())
	d.server.SQL(t, "SELECT pg_terminate_backend"+strings.ReplaceAll(end, "12345", pid))
	eventually(t, func() bool { return pids() == "" })
}
