//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package sqlite

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/internal/testenv"
)

const (
	roleVariable = "DLOCK_SQLITE_ROLE"
	dsnVariable  = "DLOCK_SQLITE_DSN"

	rivalVariable = "DLOCK_SQLITE_RIVAL"
	userVariable  = "DLOCK_SQLITE_USER"
)

// TestMain is also the main function of the child processes.
func TestMain(m *testing.M) {
	var user, group int
	if n, _ := fmt.Sscan(os.Getenv(userVariable), &user, &group); n == 2 {
		if err := errors.Join(syscall.Setgroups(nil), syscall.Setgid(group), syscall.Setuid(user)); err != nil {
			panic(err)
		}
	}
	switch os.Getenv(roleVariable) {
	case "":
		os.Exit(leakcheck.After(m.Run()))
	case "hold":
		hold(os.Getenv(dsnVariable))
	case "work":
		work(os.Getenv(dsnVariable))
	case "contend":
		contend(os.Getenv(rivalVariable), os.Getenv(dsnVariable))
	}
	os.Exit(1)
}

func hold(dsn string) {
	client, err := dlock.Open("sqlite", dsn)
	if err == nil {
		var lock *dlock.Lock
		if lock, err = client.RWMutex("stock/42").Lock(context.Background()); err == nil {
			fmt.Println(lock.Token())
			time.Sleep(time.Hour) // the test kills this process
		}
	}
	fmt.Println(err)
}

// work also takes a kernel lock, to prove that it is the only holder.
func work(dsn string) {
	path, _, _ := strings.Cut(dsn, "?")
	guard, err := os.OpenFile(filepath.Join(filepath.Dir(path), "guard"), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	var client *dlock.Client
	if err == nil {
		client, err = dlock.Open("sqlite", dsn)
	}
	for err == nil {
		err = workOnce(client, guard)
	}
	fmt.Println(err)
}

func workOnce(client *dlock.Client, guard *os.File) error {
	lock, err := client.RWMutex("stock/42").Lock(context.Background())
	if err != nil {
		return err
	}
	if err := flock(guard, syscall.LOCK_EX); err != nil {
		return fmt.Errorf("two holders: %w", err)
	}
	_, err = fmt.Fprintln(guard, lock.Token())
	return errors.Join(err, flock(guard, syscall.LOCK_UN), lock.Unlock())
}

type process struct {
	*exec.Cmd
	lines  *bufio.Scanner
	output io.Reader
}

func (p *process) rest() string {
	b, _ := io.ReadAll(p.output) // the process may have been killed in mid-line
	return string(b)
}

func start(t testing.TB, role, dsn string, env ...string) *process {
	p := &process{Cmd: exec.Command(os.Args[0])}
	p.Env = append(append(os.Environ(), roleVariable+"="+role, dsnVariable+"="+dsn), env...)
	p.Stderr = os.Stderr
	out, in, err := os.Pipe()
	require.NoError(t, err)
	p.Stdout = in
	require.NoError(t, p.Start())
	require.NoError(t, in.Close())
	p.output, p.lines = out, bufio.NewScanner(out)
	t.Cleanup(func() { _ = out.Close() })
	t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	_ = p.Process.Kill()
	_ = p.Wait() // returns an error, because the process was killed
}

func (p *process) line(t testing.TB) string {
	require.True(t, p.lines.Scan(), "the process ended: %v", p.lines.Err())
	return p.lines.Text()
}

func open(t testing.TB, dsn string) *dlock.Client {
	client, err := dlock.Open("sqlite", dsn)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

// With so long a timeout, only the kernel's file lock reveals the death in
// time.
func TestAKilledProcessLosesItsLockAtOnce(t *testing.T) {
	dsn := filepath.Join(directory(t), "locks.db") + "?session_timeout=24h"
	for _, next := range []string{"a waiter", "a new client", "a client that only tries"} {
		t.Run(next, func(t *testing.T) {
			var stock *dlock.RWMutex
			if next != "a new client" {
				client := open(t, dsn)
				require.NoError(t, client.Ping(t.Context()))
				stock = client.RWMutex("stock/42")
			}
			holder := start(t, "hold", dsn)
			token, err := strconv.ParseInt(holder.line(t), 10, 64)
			require.NoError(t, err)
			if next != "a waiter" {
				holder.kill()
			}
			if next == "a new client" {
				stock = open(t, dsn).RWMutex("stock/42")
			}
			var lock *dlock.Lock
			if next == "a client that only tries" {
				lock, err = stock.TryLock(t.Context())
				require.NoError(t, err)
			} else {
				locked := testenv.LockLater(t, stock)
				if next == "a waiter" {
					require.Eventually(t, func() bool { return nodes(t, dsn) == 2 }, time.Minute, time.Millisecond)
					holder.kill()
				}
				lock, _ = testenv.Receive(t, locked, "the lock of the killed process is free")
			}
			require.Greater(t, lock.Token(), token)
			assert.NoError(t, lock.Unlock())
		})
	}
}

func nodes(t testing.TB, dsn string) (n int) {
	path, _, _ := strings.Cut(dsn, "?")
	db, err := sql.Open("sqlite", fileURI(path)+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	defer db.Close()
	require.NoError(t, db.QueryRow(`SELECT count(*) FROM dlock_node`).Scan(&n))
	return n
}

func tokens(t testing.TB, dir string) (list []int64) {
	b, err := os.ReadFile(filepath.Join(dir, "guard"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	for _, line := range strings.Fields(string(b)) {
		n, err := strconv.ParseInt(line, 10, 64)
		require.NoError(t, err)
		list = append(list, n)
	}
	return list
}

func TestKilledProcessesLeaveOneHolderAndRisingTokens(t *testing.T) {
	t.Parallel()
	dir := directory(t)
	dsn := filepath.Join(dir, "locks.db") + "?session_timeout=24h"
	var workers []*process
	for range 4 {
		workers = append(workers, start(t, "work", dsn))
	}
	for i := range 12 {
		before := len(tokens(t, dir))
		require.Eventually(t, func() bool { return len(tokens(t, dir)) > before+20 }, time.Minute, time.Millisecond,
			"the processes have stopped")
		workers[i%4].kill()
		assert.NotContains(t, workers[i%4].rest(), "two holders")
		workers[i%4] = start(t, "work", dsn)
	}
	for _, w := range workers {
		w.kill()
		assert.NotContains(t, w.rest(), "two holders")
	}
	list := tokens(t, dir)
	assert.True(t, slices.IsSorted(list) && len(slices.Compact(slices.Clone(list))) == len(list), "the tokens rise: %v", list)
	t.Logf("%d locks, last token %d", len(list), list[len(list)-1])

	client := open(t, dsn)
	lock, err := client.RWMutex("stock/42").Lock(t.Context())
	require.NoError(t, err)
	assert.Greater(t, lock.Token(), list[len(list)-1])
	assert.NoError(t, lock.Unlock())
	assert.Zero(t, nodes(t, dsn), "the nodes of the killed processes are gone")
}

// A killed process frees its file locks. A stopped one misses its deadline.
func TestAStoppedProcessLosesItsLockByTheDeadline(t *testing.T) {
	t.Parallel()
	path := filepath.Join(directory(t), "locks.db")
	holder := start(t, "hold", path+"?session_timeout=1s")
	token, err := strconv.ParseInt(holder.line(t), 10, 64)
	require.NoError(t, err)
	require.NoError(t, holder.Process.Signal(syscall.SIGSTOP))
	defer holder.Process.Signal(syscall.SIGCONT)
	lock, err := open(t, path+"?session_timeout=20s").RWMutex("stock/42").Lock(t.Context())
	require.NoError(t, err)
	assert.Greater(t, lock.Token(), token)
	assert.NoError(t, lock.Unlock())
}

// SQLite's and the driver's own files must be beside the file, not the link.
func TestALinkToAFileThatIsNotThereYet(t *testing.T) {
	dir := directory(t)
	link, path := filepath.Join(dir, "link.db"), filepath.Join(dir, "locks.db")
	require.NoError(t, os.Symlink("locks.db", link))
	a := connect(t, newStoreAt(t, link, 24*time.Hour))
	b := connect(t, newStoreAt(t, path, 24*time.Hour))
	assert.Equal(t, memberOf(b).presence.dir, memberOf(a).presence.dir)
	assert.NoDirExists(t, link+"-sessions")
}

// The holder never unlocks: its next heartbeat must find that the log is gone.
func TestARemovedLogBlocksNobodyAfterTheNextHeartbeat(t *testing.T) {
	path := filepath.Join(directory(t), "locks.db")
	start(t, "hold", path+"?session_timeout=1s").line(t)
	require.NoError(t, os.Remove(path+"-wal"))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	lock, err := open(t, path).RWMutex("stock/42").Lock(ctx)
	require.NoError(t, err)
	require.NoError(t, lock.Unlock())
}

func TestOneFileHasOneHolderByWhateverPath(t *testing.T) {
	dir := directory(t)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a", "b", "c"), 0o700))
	require.NoError(t, os.Symlink(filepath.Join("a", "b", "c"), filepath.Join(dir, "link")))
	held, err := open(t, filepath.Join(dir, "a", "b", "locks.db")).RWMutex("l").TryLock(t.Context())
	require.NoError(t, err)
	refused := func(path string) {
		t.Helper()
		_, err := open(t, path).RWMutex("l").TryLock(t.Context())
		assert.ErrorIs(t, err, dlock.ErrLocked, path)
	}
	refused(dir + "/link/../locks.db")
	t.Chdir(dir)
	refused("link/../locks.db")
	t.Chdir(filepath.Join(dir, "link"))
	refused("../locks.db")
	t.Setenv("PWD", "")
	refused("../locks.db")
	assert.NoError(t, held.Unlock())
	err = newStoreAt(t, dir+"/missing/../locks.db", time.Minute).connectOnce(t)
	assert.ErrorContains(t, err, "does not exist: make it", "as for the kernel")
}

// Users of a group share the directory, so session files must belong to the
// group.
func TestTheFilesOfSessionsHaveTheGroupOfTheirDirectory(t *testing.T) {
	dir := directory(t)
	require.NoError(t, os.Chmod(dir, 0o770|os.ModeSetgid))
	below := filepath.Join(dir, "below")
	require.NoError(t, os.Mkdir(below, 0o700))
	info, err := os.Stat(below)
	require.NoError(t, err)
	if info.Mode()&os.ModeSetgid == 0 {
		t.Skip("on this system directories do not inherit the setgid bit")
	}
	s := connect(t, newStoreAt(t, filepath.Join(dir, "locks.db"), time.Minute))
	info, err = os.Stat(memberOf(s).presence.dir)
	require.NoError(t, err)
	assert.NotZero(t, info.Mode()&os.ModeSetgid)
}

// A user without write access must leave no file that others can't write.
func TestUsersShareAFile(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may run processes of other users")
	}
	const group = 20001
	dir := directory(t)
	path := filepath.Join(dir, "locks.db")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	for _, p := range []string{dir, path} {
		require.NoError(t, os.Chown(p, 0, group))
	}
	require.NoError(t, os.Chmod(path, 0o664))
	require.NoError(t, os.Chmod(dir, 0o777|os.ModeSetgid))
	as := func(user, group int) *process {
		return start(t, "hold", path+"?session_timeout=10m", fmt.Sprintf("%s=%d %d", userVariable, user, group))
	}
	refused := as(10003, 10003)
	assert.Contains(t, refused.line(t), "may not write the database file")
	refused.kill()
	for user := 10001; user <= 10002; user++ {
		holder := as(user, group)
		_, err := strconv.Atoi(holder.line(t))
		require.NoError(t, err)
		assert.Contains(t, as(10003, 10003).line(t), "may not write the database file")
		holder.kill()
	}
}

func TestPathsThatSQLiteCannotOpenSayWhy(t *testing.T) {
	dir := directory(t)
	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	long := filepath.Join(dir, strings.Repeat(strings.Repeat("d", 100)+"/", 5), "locks.db")
	require.NoError(t, os.MkdirAll(filepath.Dir(long), 0o700))
	for path, says := range map[string]string{pipe: "is a device, a pipe", long: "give a shorter one"} {
		err := newStoreAt(t, path, time.Minute).connectOnce(t)
		assert.ErrorContains(t, err, says)
		assert.NotErrorIs(t, err, driver.ErrUnavailable, path)
	}
}

// die makes a session look an hour old and its process dead.
func die(t testing.TB, s driver.Session) {
	p := memberOf(s).presence
	p.unlock()
	makeOld(t, p.path(p.id))
	makeOld(t, p.path(p.id+".wake"))
}

func makeOld(t testing.TB, path string) {
	past := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(path, past, past))
}

func TestAKilledProcessThatWasOldAndAloneLosesItsLockAtOnce(t *testing.T) {
	st := newStoreAt(t, filepath.Join(directory(t), "locks.db"), 24*time.Hour)
	killed := connect(t, st)
	create(t, killed)
	die(t, killed)
	list, err := connect(t, st).List(t.Context(), "q")
	require.NoError(t, err)
	assert.Empty(t, list)
}

// A process may be killed before it has added its session to the database.
func TestFilesWithoutASessionAreRemovedWhileAnotherSessionLives(t *testing.T) {
	st := newStoreAt(t, filepath.Join(directory(t), "locks.db"), time.Hour)
	a := connect(t, st)
	left := memberOf(a).presence.path("LEFT")
	for _, path := range []string{left, left + ".wake", memberOf(a).presence.path("PIPE.wake")} {
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		makeOld(t, path)
	}
	makeOld(t, memberOf(a).presence.path(memberOf(a).presence.id))
	connect(t, st)
	assert.NoFileExists(t, left)
	assert.NoFileExists(t, left+".wake")
	assert.NoFileExists(t, memberOf(a).presence.path("PIPE.wake"))
	assert.FileExists(t, memberOf(a).presence.path(memberOf(a).presence.id))
}

func TestWaitersBehindOthersPollLessOften(t *testing.T) {
	st := newStoreAt(t, filepath.Join(directory(t), "locks.db"), time.Hour)
	for _, pause := range []time.Duration{0, 0, longest, 2 * longest} { // holder, first waiter, later waiters
		s := connect(t, st)
		create(t, s)
		found, err := memberOf(s).Look(t.Context(), []session.Query{{Queue: "q"}})
		require.NoError(t, err)
		assert.Equal(t, pause, found[0].Pause)
	}
}
