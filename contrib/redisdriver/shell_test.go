package redisdriver

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/testenv"
)

// shell runs the redis-cli commands that two pages of docs show.
type shell struct {
	t         *testing.T
	server    *redistest.Server
	documents string // text of the pages
	dir       string // working directory of the commands
}

// newShell starts its own server, because the documented commands use the
// default namespace.
func newShell(t *testing.T, options ...redistest.Option) *shell {
	sh := &shell{t: t, server: redistest.Start(t, options...), dir: t.TempDir()}
	for _, page := range []string{"contribute/other-languages.md", "stores/redis.md"} {
		text, err := os.ReadFile("../../docs/" + page)
		require.NoError(t, err)
		sh.documents += string(text)
	}
	lua, err := filepath.Abs("lua")
	require.NoError(t, err)
	require.NoError(t, os.Symlink(lua, filepath.Join(sh.dir, "lua")))
	sh.run("for f in lua/*.lua; do cat lua/first.lua lua/common.lua $f >$(basename $f); done")
	return sh
}

func (sh *shell) dsn() string {
	return "redis://" + sh.server.Addr() + "?empty_is_new=true&session_timeout=2h"
}

func (sh *shell) client() *dlock.Client {
	client, err := dlock.Open("redis", sh.dsn())
	require.NoError(sh.t, err)
	sh.t.Cleanup(func() { client.Close() })
	return client
}

// try runs a documented command, with parts of it replaced, and returns its
// lines.
func (sh *shell) try(command string, replace ...string) (lines []string, err error) {
	sh.t.Helper()
	require.Contains(sh.t, sh.documents, command+"\n", "no page contains the command")
	_, port, err := net.SplitHostPort(sh.server.Addr())
	require.NoError(sh.t, err)
	text := strings.NewReplacer(append(replace, "redis-cli ", "redis-cli -p "+port+" ")...).Replace(command)
	c := exec.Command("/bin/sh", "-c", text)
	c.Dir = sh.dir
	out, err := c.CombinedOutput()
	return strings.Split(strings.TrimSpace(string(out)), "\n"), err
}

func (sh *shell) run(command string, replace ...string) (lines []string) {
	sh.t.Helper()
	lines, err := sh.try(command, replace...)
	require.NoError(sh.t, err, "%s", lines)
	return lines
}

func (sh *shell) operator(statement string) (lines []string) {
	sh.t.Helper()
	require.Contains(sh.t, sh.documents, statement+"\n")
	_, port, err := net.SplitHostPort(sh.server.Addr())
	require.NoError(sh.t, err)
	out, err := exec.Command("redis-cli", append([]string{"-e", "-p", port}, strings.Fields(statement)...)...).CombinedOutput()
	require.NoError(sh.t, err, "%s", out)
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

const (
	shellOpen   = "redis-cli -e --eval open.lua {dlock}:seq , shell-1 10000000 10000000 0 0 - 0"
	shellBeat   = "redis-cli -e --eval beat.lua {dlock}:seq , shell-1 10000000"
	shellCreate = "redis-cli -e --eval create.lua {dlock}:seq , shell-1 stock/42 1 sh-W- 'from sh' 0"
	shellList   = "redis-cli -e --eval look.lua {dlock}:seq , shell-1 stock/42 -1"
	shellDelete = "redis-cli -e --eval delete.lua {dlock}:seq , shell-1 stock/42 SEQ r"
	shellCancel = "redis-cli -e --eval cancel.lua {dlock}:seq , shell-1 1"
	shellClose  = "redis-cli -e --eval close.lua {dlock}:seq , shell-1"
	showQueue   = "ZRANGE {dlock}:q:stock/42 0 -1 WITHSCORES"
)

// tenMinutes replaces the session timeout in microseconds, which is too short
// for slow machines.
var tenMinutes = []string{"10000000", "600000000"}

func (sh *shell) begin() {
	require.Eventually(sh.t, func() bool {
		return sh.run(shellOpen, " 10000000 10000000 ", " 600000000 100000 ")[0] == "0"
	}, 30*time.Second, 10*time.Millisecond)
}

func node(member string) string {
	name, _, _ := strings.Cut(member, "/")
	return name
}

func TestAShellTakesPart(t *testing.T) {
	t.Parallel()
	sh := newShell(t)
	holder, err := sh.client().RWMutex("stock/42").Lock(t.Context())
	require.NoError(t, err)

	sh.begin()
	reply := sh.run(shellCreate)
	require.Len(t, reply, 3, "%s", reply)
	token, err := strconv.ParseInt(reply[0], 10, 64)
	require.NoError(t, err)
	require.Greater(t, token, holder.Token())
	own := "sh-W-" + reply[0]
	require.Equal(t, holder.Node(), node(reply[1]), "the Go client is ahead")

	queue := sh.run(shellList)
	require.Len(t, queue, 2)
	require.Equal(t, []string{holder.Node(), own}, []string{node(queue[0]), node(queue[1])})
	rows := sh.operator(showQueue)
	require.Equal(t, []string{reply[1], strconv.FormatInt(holder.Token(), 10), own + "/shell-1/1/from sh", reply[0]}, rows)

	require.NoError(t, holder.Unlock())
	require.Equal(t, own, node(sh.run(shellList)[0]), "the shell holds the lock")
	require.NotEmpty(t, sh.run(shellBeat, tenMinutes...))

	other := sh.client()
	_, err = other.RWMutex("stock/42").TryLock(t.Context())
	require.ErrorIs(t, err, dlock.ErrLocked)
	granted := testenv.LockLater(t, other.RWMutex("stock/42"))
	require.Eventually(t, func() bool {
		lines, _ := sh.server.Do("HGET", "{dlock}:w:stock/42", own).(string)
		return lines != ""
	}, 30*time.Second, time.Millisecond, "the Go client does not wait for the shell")
	require.Empty(t, granted)
	require.Equal(t, own, node(sh.run(shellList)[0]))

	require.Equal(t, []string{"1"}, sh.run(shellDelete, "SEQ", reply[0]))
	next := <-granted
	require.Greater(t, next.Token(), token)
	lines, err := sh.try(shellDelete, "SEQ", reply[0])
	require.Error(t, err)
	require.Contains(t, lines[0], "DLOCKGONE")
	sh.run(shellClose)
	lines, err = sh.try(shellCreate)
	require.Error(t, err)
	require.Contains(t, lines[0], "DLOCKENDED")
	require.NoError(t, next.Err())
	require.NoError(t, next.Unlock())
}

// The create whose reply was lost may have run or may still arrive.
func TestAShellCancelsACreate(t *testing.T) {
	t.Parallel()
	sh := newShell(t)
	sh.begin()
	sh.run(shellCreate)
	sh.run(shellCancel)
	require.Equal(t, []string{""}, sh.run(shellList))
	sh.run(shellCancel) // as if the create had not arrived yet
	lines, err := sh.try(shellCreate)
	require.Error(t, err)
	require.Contains(t, lines[0], "DLOCKCANCELLED")
	require.Equal(t, []string{""}, sh.run(shellList))
}

func TestAnOperatorSeesAndMends(t *testing.T) {
	t.Parallel()
	sh := newShell(t)
	sh.begin()
	sh.run(shellCreate)
	waiting := sh.client()
	granted := testenv.LockLater(t, waiting.RWMutex("stock/42"))
	require.Eventually(t, func() bool { return len(sh.operator(showQueue)) == 4 }, 30*time.Second, time.Millisecond)
	sessions := sh.operator("ZRANGE {dlock}:sessions 0 -1 WITHSCORES")
	require.Len(t, sessions, 4, "%s", sessions)
	require.Contains(t, sessions, "shell-1")

	sh.server.Do("ZADD", "{dlock}:sessions", "XX", "0", "shell-1")
	require.Contains(t, sh.documents, "ZADD {dlock}:sessions XX 0 luhe6maccr53sbhi\n")
	second, err := sh.client().RWMutex("stock/42").TryLock(t.Context())
	require.ErrorIs(t, err, dlock.ErrLocked)
	require.Nil(t, second)
	next := <-granted
	require.NoError(t, next.Unlock())
}
