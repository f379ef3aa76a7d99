package sqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqltest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/internal/testenv"
)

func TestBadDSNsAreRefused(t *testing.T) {
	testenv.RefuseDSNs(t, Driver{}, "sqlite: dsn: ", "secret", map[string]string{
		"file:/d/locks.db":                  "without the prefix",
		":memory:":                          "in memory",
		"mysql://shop:secret/x?secret=3@db": "in place of a URL",
		"file::memory:?cache=shared":        "without the prefix",
		"/d/a\x00b":                         "unprintable character",
		"/d?timeout=10s":                    `"timeout" is not known`,
		"/d?session_timeout=1ms":            "not a duration from 100ms to 24h",
		"/d?session_timeout=25h":            "not a duration from 100ms to 24h",
		"?password=secret":                  `"password" is not known`,
	})
}

func FuzzDSN(f *testing.F) {
	for _, s := range []string{"", "/d", "/d?session_timeout=10s", "?session_timeout=1h", "/d?x=y", "/d?%zz", ":memory:", "file:/d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		opened, err := Driver{}.OpenConnector(dsn)
		if err != nil {
			require.Nil(t, opened)
			require.ErrorContains(t, err, "sqlite: dsn: ")
			return
		}
		c := opened.(*connector)
		require.True(t, c.path == "" || filepath.IsAbs(c.path))
		require.Equal(t, dsn == "" || dsn[0] == '?', c.path == "")
		require.True(t, minTimeout <= c.timeout && c.timeout <= maxTimeout)
	})
}

func connect(t testing.TB, c driver.Connector) *session.Session {
	s, err := c.Connect(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s.(*session.Session)
}

func create(t testing.TB, s driver.Session) driver.Joined {
	t.Helper()
	j, err := s.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-"})
	require.NoError(t, err)
	return j
}

func TestPathsThatCannotWorkSayWhy(t *testing.T) {
	dir := directory(t)
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	newer := filepath.Join(dir, "newer.db")
	require.NoError(t, newStoreAt(t, newer, time.Minute).connectOnce(t))
	operate(t, newer, `UPDATE dlock_store SET schema = 3`)
	foreign := filepath.Join(dir, "foreign.db")
	operate(t, foreign, `CREATE TABLE dlock_store (a)`)
	for path, says := range map[string]string{
		filepath.Join(dir, "missing", "locks.db"): "does not exist: make it",
		dir: "is a directory",
		write("text", strings.Repeat("hello\n", 999)): "no SQLite database",
		newer:   "the tables have layout 3, and this version of dlock needs layout",
		foreign: "tables of dlock in the database are not as this program expects",
		filepath.Join(write("plain", ""), "locks.db"): "not a directory",
	} {
		err := newStoreAt(t, path, time.Minute).connectOnce(t)
		assert.ErrorContains(t, err, says)
		assert.NotErrorIs(t, err, driver.ErrUnavailable, path)
	}
}

func (st *store) connectOnce(t testing.TB) error {
	s, err := st.Connect(t.Context())
	if err != nil {
		return err
	}
	return s.Close()
}

func TestAFileThatCannotBeWrittenSaysSo(t *testing.T) {
	err := explain(failure(codeReadOnly))
	assert.ErrorContains(t, err, "may not write")
	assert.NotErrorIs(t, err, driver.ErrUnavailable)
	if os.Getuid() == 0 {
		t.Log("the superuser may write every file, so no real file was tried")
		return
	}
	path := filepath.Join(directory(t), "locks.db")
	require.NoError(t, newStoreAt(t, path, time.Minute).connectOnce(t))
	for _, mode := range []os.FileMode{0o400, 0} {
		require.NoError(t, os.Chmod(path, mode))
		err = newStoreAt(t, path, time.Minute).connectOnce(t)
		assert.ErrorContains(t, err, "may not write")
		assert.NotErrorIs(t, err, driver.ErrUnavailable)
	}
	dir := directory(t)
	require.NoError(t, os.Chmod(dir, 0o500))
	err = newStoreAt(t, filepath.Join(dir, "locks.db"), time.Minute).connectOnce(t)
	assert.ErrorContains(t, err, "may not write")
	assert.NotErrorIs(t, err, driver.ErrUnavailable)
}

type failure int

func (f failure) Error() string { return "played failure" }
func (f failure) Code() int     { return int(f) }

func TestAFullDiskIsUnavailableAndTheSessionLives(t *testing.T) {
	s := connect(t, newStoreAt(t, filepath.Join(directory(t), "locks.db"), time.Hour))
	limit := func(pages int) {
		require.NoError(t, memberOf(s).db.use(t.Context(), func() error {
			_, err := memberOf(s).db.conn.ExecContext(t.Context(), "PRAGMA max_page_count = "+map[int]string{1: "1", 9: "100000"}[pages])
			return err
		}))
	}
	// SQLite never lowers the limit below the current size of the file.
	limit(1)
	big := driver.NodeSpec{Prefix: "a-W-", Data: make([]byte, 1<<16)}
	_, err := s.Create(t.Context(), "q", big)
	assert.ErrorIs(t, err, driver.ErrUnavailable)
	assert.ErrorContains(t, err, "the disk is full")
	assert.NoError(t, s.Err())
	list, err := s.List(t.Context(), "q")
	assert.NoError(t, err)
	assert.Empty(t, list, "rule 4")
	limit(9)
	_, err = s.Create(t.Context(), "q", big)
	assert.NoError(t, err)
}

func TestReadersDoNotWaitForAWriter(t *testing.T) {
	path := filepath.Join(directory(t), "locks.db")
	s, other := connect(t, newStoreAt(t, path, time.Hour)), memberOf(connect(t, newStoreAt(t, path, time.Hour)))
	require.NoError(t, other.db.use(t.Context(), func() error {
		require.NoError(t, other.db.exec(t.Context(), sqlBegin))
		_, err := s.List(t.Context(), "q")
		assert.NoError(t, err)
		return other.db.exec(t.Context(), sqlRollback)
	}))
}

func TestASessionEndsIfAFileOfTheDatabaseIsReplaced(t *testing.T) {
	t.Parallel()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		t.Run("locks.db"+suffix, func(t *testing.T) {
			path := filepath.Join(directory(t), "locks.db")
			c := newStoreAt(t, path, 8*time.Second)
			s, err := c.Connect(t.Context())
			require.NoError(t, err)
			defer s.Close()
			require.NoError(t, os.Rename(path+suffix, path+".old"))
			testenv.Receive(t, s.Done(), "the session ends")
			assert.ErrorContains(t, s.Err(), "removed or replaced: "+path+suffix)
		})
	}
}

func commits(f func(), sessions ...driver.Session) (n int64) {
	for _, s := range sessions {
		n -= wireOf(s).commits.Load()
	}
	f()
	for _, s := range sessions {
		n += wireOf(s).commits.Load()
	}
	return n
}

type remember struct {
	driver.Connector
	sessions chan driver.Session
}

func (r remember) Connect(ctx context.Context) (driver.Session, error) {
	s, err := r.Connector.Connect(ctx)
	if err == nil {
		r.sessions <- s
	}
	return s, err
}

// The session timeout is so long that no heartbeats are sent during a test.
func client(t testing.TB, path string) (*dlock.Client, driver.Session) {
	r := remember{newStoreAt(t, path, 24*time.Hour), make(chan driver.Session, 1)}
	c := dlock.NewClient(r)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	require.NoError(t, c.Ping(t.Context()))
	return c, <-r.sessions
}

func TestTransactionsPerLock(t *testing.T) {
	path := filepath.Join(directory(t), "locks.db")
	a, sa := client(t, path)
	b, sb := client(t, path)
	lock := func(c *dlock.Client) *dlock.Lock {
		l, err := c.RWMutex("stock/42").Lock(t.Context())
		require.NoError(t, err)
		return l
	}
	assert.EqualValues(t, 2, commits(func() { require.NoError(t, lock(a).Unlock()) }, sa, sb), "a free lock")

	held := lock(a)
	reads := wireOf(sb).reads.Load()
	got := make(chan *dlock.Lock)
	n := commits(func() {
		go func() { got <- lock(b) }()
		require.Eventually(t, func() bool { return wireOf(sb).reads.Load() > reads }, time.Minute, time.Millisecond)
		require.NoError(t, held.Unlock())
		require.NoError(t, (<-got).Unlock())
	}, sa, sb)
	assert.EqualValues(t, 3, n, "a hand-over: a create and two deletes")
}

// A heartbeat changes no queue, so other sessions must not read their queues
// again.
func TestAPollReadsOnlyWhatHasChanged(t *testing.T) {
	st := newStoreAt(t, filepath.Join(directory(t), "locks.db"), 24*time.Hour)
	a, b := connect(t, st), connect(t, st)
	ask := []session.Query{{Queue: "p"}, {Queue: "q"}}
	look := func() (reads int64) {
		before := wireOf(b).reads.Load()
		found, err := memberOf(b).Look(t.Context(), ask)
		require.NoError(t, err)
		for i, s := range found {
			ask[i].Known = s.Version
		}
		return wireOf(b).reads.Load() - before
	}
	require.EqualValues(t, 2, look())
	require.Zero(t, look())
	_, err := memberOf(a).Beat(t.Context())
	require.NoError(t, err)
	before := memberOf(b).version
	require.Zero(t, look())
	require.NotEqual(t, before, memberOf(b).version, "the heartbeat has changed the database")
	for _, s := range []driver.Session{a, b} {
		create(t, s)
		require.EqualValues(t, 2, look())
		require.Zero(t, look())
	}
}

func TestNodesOfASessionThatCouldNotBeClosedGoAtOnce(t *testing.T) {
	if !kernelLocks {
		t.Skip("this system has no lock that shows the death of a session")
	}
	st := newStoreAt(t, filepath.Join(directory(t), "locks.db"), 24*time.Hour)
	a, b := connect(t, st), connect(t, st)
	create(t, a)
	require.NoError(t, memberOf(b).db.use(t.Context(), func() error {
		require.NoError(t, memberOf(b).db.exec(t.Context(), sqlBegin))
		err := a.Close()
		require.ErrorIs(t, err, driver.ErrUnavailable)
		assert.Equal(t, 1, strings.Count(err.Error(), driver.ErrUnavailable.Error()), err)
		return memberOf(b).db.exec(t.Context(), sqlRollback)
	}))
	list, err := b.List(t.Context(), "q")
	require.NoError(t, err)
	assert.Empty(t, list)
}

// The poll ends the dead process's session after the List has read the queue.
func TestAListReadsAgainWhatAPollHasCleanedUp(t *testing.T) {
	if !kernelLocks {
		t.Skip("this system has no lock that shows the death of a session")
	}
	st := newStoreAt(t, filepath.Join(directory(t), "locks.db"), 24*time.Hour)
	a, b := connect(t, st), memberOf(connect(t, st))
	create(t, a)
	_, suspects, err := b.look(t.Context(), []session.Query{{Queue: "q"}})
	require.NoError(t, err)
	require.Equal(t, []string{memberOf(a).presence.id}, suspects)
	require.False(t, b.dropDead(t.Context(), suspects), "the session is alive")

	memberOf(a).presence.unlock()
	_, err = b.Expire(t.Context())
	require.NoError(t, err)
	require.True(t, b.dropDead(t.Context(), suspects))
}

func copyFiles(t testing.TB, from, to string, length int64) {
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(from + suffix)
		require.NoError(t, err)
		if suffix == "-wal" {
			b = b[:length]
		}
		require.NoError(t, os.WriteFile(to+suffix, b, 0o600))
	}
}

func walLength(t testing.TB, path string) int64 {
	info, err := os.Stat(path + "-wal")
	require.NoError(t, err)
	return info.Size()
}

// A power cut leaves the write-ahead log intact only up to the last sync.
func TestAPowerCutBringsNoTokenBack(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	path := filepath.Join(dir, "locks.db")
	st := newStoreAt(t, path, time.Hour)
	synced := int64(-1)
	st.synced = func() { synced = walLength(t, path) }
	s := connect(t, st)
	operate(t, path, "UPDATE dlock_store SET last = reserved - 5") // the next block of tokens is reserved soon
	synced = walLength(t, path)
	var last int64
	for i := range 30 {
		j := create(t, s)
		require.Greater(t, j.Token, last)
		last = j.Token
		length := walLength(t, path)
		require.GreaterOrEqual(t, length, synced)
		for _, cut := range []int64{synced, (synced + length) / 2, length - 1} {
			if cut < synced {
				continue
			}
			restored := filepath.Join(dir, "cut.db")
			copyFiles(t, path, restored, cut)
			after, err := newStoreAt(t, restored, time.Hour).Connect(t.Context())
			require.NoError(t, err)
			j := create(t, after)
			assert.Greater(t, j.Token, last, "token after a power cut behind lock %d", i)
			require.NoError(t, after.Close())
			removeFiles(t, restored)
		}
	}
}

func TestAPowerCutTakesNoValue(t *testing.T) {
	dir := directory(t)
	path, restored := filepath.Join(dir, "locks.db"), filepath.Join(dir, "cut.db")
	st := newStoreAt(t, path, time.Hour)
	synced := int64(-1)
	st.synced = func() { synced = walLength(t, path) }
	s := connect(t, st)
	j := create(t, s)
	require.NoError(t, s.SetValue(t.Context(), "q", j.Place, []byte("value")))
	copyFiles(t, path, restored, synced)
	after := connect(t, newStoreAt(t, restored, time.Hour))
	value, token, err := after.Value(t.Context(), "q")
	require.NoError(t, err)
	require.Equal(t, "value", string(value))
	require.Equal(t, j.Token, token)
}

func removeFiles(t testing.TB, path string) {
	for _, suffix := range []string{"", "-wal", "-shm", "-sessions"} {
		require.NoError(t, os.RemoveAll(path+suffix))
	}
}

func TestACommitThatReservesTokensWaitsForTheDisk(t *testing.T) {
	t.Parallel()
	st := newStoreAt(t, filepath.Join(directory(t), "locks.db"), time.Hour)
	var full []bool
	st.reserving = func(waits bool) { full = append(full, waits) }
	s := connect(t, st)
	for range block + 10 {
		j := create(t, s)
		require.NoError(t, s.Delete(t.Context(), "q", j.Place, driver.Changed))
	}
	assert.Equal(t, []bool{true, true}, full, "at the beginning, and after the first block")
	for pragma, want := range map[string]int{
		"PRAGMA synchronous": 1, // NORMAL otherwise
		// Without fullfsync, fsync on macOS returns before the data is on the
		// disk.
		"PRAGMA fullfsync": 1,
	} {
		var mode int
		require.NoError(t, memberOf(s).db.use(t.Context(), func() error {
			_, err := memberOf(s).db.row(t.Context(), pragma, []any{&mode})
			return err
		}))
		assert.Equal(t, want, mode, pragma)
	}
}

func TestAnApplicationsDatabase(t *testing.T) {
	path := filepath.Join(directory(t), "application.db")
	db := otherProgram(t, path)
	db.SetMaxOpenConns(1) // enough, because sessions open their own connections
	_, err := db.Exec("CREATE TABLE item (name TEXT)")
	require.NoError(t, err)
	c, err := NewConnector(db, 0)
	require.NoError(t, err)
	a, b := connect(t, c), connect(t, c)
	assert.Equal(t, defaultTimeout, a.Describe().Timeout)
	j := create(t, a)
	list, err := b.List(t.Context(), "q")
	require.NoError(t, err)
	assert.Equal(t, []driver.Node{j.Node}, list)
	_, err = db.Exec("INSERT INTO item VALUES ('bolt')")
	assert.NoError(t, err)

	memory, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	defer memory.Close()
	c, err = NewConnector(memory, time.Second)
	require.NoError(t, err)
	_, err = c.Connect(t.Context())
	assert.ErrorContains(t, err, "in memory")
	_, err = NewConnector(db, time.Nanosecond)
	assert.ErrorContains(t, err, "session timeout")
	other := sql.OpenDB(otherDriver{})
	defer other.Close()
	_, err = NewConnector(other, 0)
	assert.ErrorContains(t, err, "not that of modernc.org/sqlite")
}

type otherDriver struct{}

func (d otherDriver) Driver() sqldriver.Driver { return d }
func (otherDriver) Open(string) (sqldriver.Conn, error) {
	return nil, errors.New("not used")
}
func (otherDriver) Connect(context.Context) (sqldriver.Conn, error) {
	return nil, errors.New("not used")
}

func TestTheDefaultFile(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	t.Setenv("XDG_STATE_HOME", state)
	t.Setenv("HOME", filepath.Join(state, "home"))
	c, err := dlock.Open("sqlite", "?session_timeout=1m")
	require.NoError(t, err)
	require.NoError(t, c.Ping(t.Context()))
	require.NoError(t, c.Close())
	path, err := defaultFile()
	require.NoError(t, err)
	assert.FileExists(t, path)
	assert.True(t, strings.HasPrefix(path, state), path)
	info, err := os.Stat(filepath.Dir(path))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o700), info.Mode().Perm())
}

func TestPathsWithUnusualCharacters(t *testing.T) {
	dir := directory(t)
	for _, name := range []string{"a b#c%20.db", "ü+&=.db", "'\".db"} {
		path := filepath.Join(dir, name)
		require.NoError(t, newStoreAt(t, path, time.Minute).connectOnce(t))
		assert.FileExists(t, path)
	}
}

func TestCloseLeavesNoFileOfTheSession(t *testing.T) {
	path := filepath.Join(directory(t), "locks.db")
	require.NoError(t, newStoreAt(t, path, time.Minute).connectOnce(t))
	entries, err := os.ReadDir(path + "-sessions")
	require.NoError(t, err)
	for _, e := range entries {
		assert.Equal(t, "alive", e.Name())
	}
}

func TestAMissingFileIsNotADeath(t *testing.T) {
	path := filepath.Join(directory(t), "locks.db")
	a := connect(t, newStoreAt(t, path, time.Hour))
	memberOf(a).presence.forget(memberOf(a).presence.id)
	b := connect(t, newStoreAt(t, path, time.Hour))
	_, err := memberOf(b).Expire(t.Context())
	require.NoError(t, err)
	_, err = a.Create(t.Context(), "q", driver.NodeSpec{Prefix: "a-W-"})
	assert.NoError(t, err)
}

func TestAPutNodeForgetsTheReleaseOfItsName(t *testing.T) {
	path := filepath.Join(directory(t), "locks.db")
	s := connect(t, newStoreAt(t, path, time.Hour))
	released := func() string {
		found, err := memberOf(s).Look(t.Context(), []session.Query{{Queue: "q"}})
		require.NoError(t, err)
		return found[0].Released
	}
	j := create(t, s)
	require.NoError(t, s.Delete(t.Context(), "q", j.Place, driver.Released))
	require.Equal(t, j.Name, released())
	operate(t, path, `INSERT INTO dlock_node (queue, seq, name) VALUES ('q', ?, ?)`, j.Seq, j.Name)
	require.Empty(t, released())
}

func TestChangeByHandIsNoticed(t *testing.T) {
	sqltest.ByHand(t, func(t *testing.T) (driver.Connector, func(string)) {
		path := filepath.Join(t.TempDir(), "locks.db")
		c, err := Driver{}.OpenConnector(path + "?session_timeout=1h")
		require.NoError(t, err)
		return c, func(text string) { operate(t, path, text) }
	}, []string{"DELETE FROM dlock_session WHERE id = ID"}, []string{"DELETE FROM dlock_node"}, []string{"DROP TABLE dlock_session"})
}
