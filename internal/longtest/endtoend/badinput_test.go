package endtoend_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/zkdriver"
)

// unchanged fails the test if the store's tree has changed by the end of the
// test.
func (w *fixture) unchanged() {
	w.Helper()
	before := w.server.Tree(w, "/")
	w.Cleanup(func() { require.Equal(w, before, w.server.Tree(w, "/"), "the store's tree") })
}

func requireWords(t testing.TB, err error, words ...string) {
	t.Helper()
	require.Error(t, err)
	for _, word := range words {
		assert.ErrorContains(t, err, word)
	}
}

func callAll(ctx context.Context, m *dlock.RWMutex) map[string]error {
	all := make(map[string]error)
	_, all["Lock"] = m.Lock(ctx)
	_, all["RLock"] = m.RLock(ctx)
	_, all["TryLock"] = m.TryLock(ctx)
	_, all["TryRLock"] = m.TryRLock(ctx)
	_, all["Queue"] = m.Queue(ctx)
	inside := func(context.Context, *dlock.Lock) error { panic("inside") }
	all["WithLock"] = m.WithLock(ctx, inside)
	all["WithRLock"] = m.WithRLock(ctx, inside)
	return all
}

func TestAnUnknownDriverIsNamed(t *testing.T) {
	c, err := dlock.Open("zookeeper", "zk://localhost")
	require.Nil(t, c)
	requireWords(t, err, `"zookeeper"`, "forgotten import", "zk")
}

func TestOpenNamesTheWrongPartOfTheDSNAndNeverThePassword(t *testing.T) {
	for dsn, words := range map[string][]string{
		"":                            {"no host"},
		"zk://":                       {"no host"},
		"zk:///chroot":                {"no host"},
		"etcd://h":                    {"scheme", "zk://"},
		"zk://h:99999":                {"host 1", "port"},
		"zk://h:abc":                  {"host 1", "port"},
		"zk://h1,h2:0":                {"host 2", "port"},
		"zk://h1,,h2":                 {"host 2", "empty"},
		"zk://::1":                    {"host 1", "brackets"},
		"zk://a b":                    {"host 1", "character"},
		"zk://user@h":                 {"user", "password"},
		"zk://u:s3cret@h:0":           {"host 1", "port"},
		"zk://u:s3cret%zz@h":          {"password", "escape"},
		"zk://u:s3cret/x@h":           {"at sign", "%2F"},
		"zk://h/a//b":                 {"chroot", "empty segment"},
		"zk://h/..":                   {"chroot", `".."`},
		"zk://h?session_timeout=10":   {"session_timeout", "duration"},
		"zk://h?session_timeout=-1s":  {"session_timeout", "from 100ms"},
		"zk://h?session_timeout":      {"session_timeout", "no value"},
		"zk://h?sesion_timeout=1s":    {`"sesion_timeout"`, "not known"},
		"zk://h?acl=fixture":          {"acl", "open"},
		"zk://h?acl=digest":           {"acl", "user"},
		"zk://h?tls=perhaps":          {"tls", "true"},
		"zk://h?tls_ca=/x":            {"tls=true"},
		"zk://h?acl=open&acl=creator": {"acl", "twice"},
		"zk://h?sequence_limit=0":     {"sequence_limit", "number"},
	} {
		t.Run(dsn, func(t *testing.T) {
			c, err := dlock.Open("zk", dsn)
			require.Nil(t, c)
			requireWords(t, err, append(words, `"zk"`, "dsn")...)
			assert.NotContains(t, err.Error(), "s3cret")
		})
	}
}

func TestRegisteringNoDriverOrOneTwicePanicsWithItsName(t *testing.T) {
	require.PanicsWithValue(t, "dlock: Register of a nil driver for nothing", func() { dlock.Register("nothing", nil) })
	require.PanicsWithValue(t, "dlock: Register called twice for driver zk", func() { dlock.Register("zk", zkdriver.Driver{}) })
	require.Equal(t, []string{"mem", "zk"}, dlock.Drivers(), "those that this package imports")
}

// silentServer returns the address of a server that accepts connections but
// never answers.
func silentServer(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

func closedPort(t *testing.T) string {
	port, err := testenv.FreePort()
	require.NoError(t, err)
	return testenv.Loopback(port)
}

func TestWithUnreachableServersEveryCallEndsWithItsContext(t *testing.T) {
	refused, silent := closedPort(t), silentServer(t)
	for _, server := range []struct{ name, addr, parameters string }{
		{"refused", refused, ""},
		{"silent", silent, ""},
		{"refused again and again", refused, "?connect_timeout=100ms"},
		{"silent again and again", silent, "?connect_timeout=100ms"},
	} {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			c, err := dlock.Open("zk", "zk://"+server.addr+"/x"+server.parameters)
			require.NoError(t, err)
			defer c.Close()
			// Ping may end during the first attempt to connect,
			// before there is an error that names the server.
			endsWithItsContext(t, 300*time.Millisecond, func(ctx context.Context) {
				requireWords(t, c.Ping(ctx), "dlock: ping: ")
			})
			m := c.RWMutex("stock/42")
			for _, enter := range []func(context.Context) (*dlock.Lock, error){m.Lock, m.RLock} {
				endsWithItsContext(t, 500*time.Millisecond, func(ctx context.Context) {
					_, err := enter(ctx)
					require.Error(t, ctx.Err(), "not before its context")
					require.ErrorIs(t, err, dlock.ErrTimeout)
					require.ErrorIs(t, err, context.DeadlineExceeded)
					requireWords(t, err, "stock/42", server.addr)
				})
			}
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(50*time.Millisecond, cancel)
			_, err = m.Lock(ctx)
			require.ErrorIs(t, err, context.Canceled)
		})
	}
}

func TestASlowConnectEndsWithTheContextOfTheCall(t *testing.T) {
	c, err := dlock.Open("zk", "zk://"+silentServer(t))
	require.NoError(t, err)
	defer c.Close()
	endsWithItsContext(t, 100*time.Millisecond, func(ctx context.Context) {
		_, err := c.RWMutex("q").Lock(ctx)
		require.Error(t, ctx.Err(), "not before its context")
		require.ErrorIs(t, err, dlock.ErrTimeout)
	})
}

// endsWithItsContext calls the function several times with a context that times
// out. It requires that most calls return soon after the timeout.
func endsWithItsContext(t *testing.T, timeout time.Duration, call func(context.Context)) {
	t.Helper()
	var late []time.Duration
	for range 5 {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		deadline, _ := ctx.Deadline()
		call(ctx)
		late = append(late, time.Since(deadline))
		cancel()
	}
	requirePrompt(t, 500*time.Millisecond, late)
}

func TestWhenTheServerStopsAnsweringALockCallEndsWithItsContext(t *testing.T) {
	w := newFixture(t)
	c, proxy := w.proxied("web1")
	w.unlock(w.lock(c).granted())
	proxy.Cut()
	defer proxy.Heal()
	endsWithItsContext(t, 200*time.Millisecond, func(ctx context.Context) {
		_, err := c.RWMutex("q").Lock(ctx)
		require.Error(t, ctx.Err(), "not before its context")
		require.ErrorIs(t, err, dlock.ErrTimeout)
	})
}

func TestABadLockNameIsRefusedByEveryUseAndTheStoreIsNotAsked(t *testing.T) {
	w := newFixture(t)
	c, proxy := w.proxied("web1")
	w.unchanged()
	requests := proxy.Requests()
	for name, words := range map[string][]string{
		"":                        {"empty"},
		"/":                       {"empty segment"},
		"/a":                      {"empty segment"},
		"a/":                      {"empty segment"},
		"a//b":                    {"empty segment"},
		".":                       {`"."`},
		"a/../b":                  {`"a/../b"`, `".."`},
		"a\x00b":                  {`"a\x00b"`, "unprintable"},
		"a\nb":                    {`"a\nb"`, "unprintable"},
		"a\u200bb":                {"unprintable"},
		"a\xffb":                  {`"a\xffb"`, "unprintable"},
		strings.Repeat("a", 513):  {"513", "512"},
		strings.Repeat("ä/", 300): {"900", "512"},
	} {
		for call, err := range callAll(w.soon(), c.RWMutex(name)) {
			require.ErrorIs(t, err, dlock.ErrBadName, "%s of %q", call, name)
			requireWords(t, err, words...)
		}
	}
	require.Equal(t, requests, proxy.Requests())
}

func TestANameThatZooKeeperCannotKeepIsRefused(t *testing.T) {
	w := newFixture(t)
	c := w.client("web1")
	top := w.open("zk://"+w.server.Addr(), "web1")
	w.unchanged()
	for call, err := range callAll(w.soon(), c.RWMutex("🔒")) {
		require.ErrorIs(t, err, dlock.ErrBadName, call)
		requireWords(t, err, "🔒", "ZooKeeper does not take")
	}
	for call, err := range callAll(w.soon(), top.RWMutex("zookeeper/x")) {
		require.ErrorIs(t, err, dlock.ErrBadName, call)
		requireWords(t, err, "zookeeper/x", "belongs to the server")
	}
}

func TestTheLongestNameAndUnicodeWork(t *testing.T) {
	w := newFixture(t)
	c := w.client(strings.Repeat("h", 300))
	for _, name := range []string{strings.Repeat("a", 512), "Lager/Größe 42/%2F & ?", "..."} {
		lock := w.contend(c, name, dlock.Exclusive).granted()
		require.Equal(t, []string{strings.Repeat("h", 200) + "-W-0000000000"}, w.nodes(name))
		w.unlock(lock)
	}
}

func TestAHostNameIsEncodedWhereItDoesNotFitANode(t *testing.T) {
	for host, want := range map[string]string{
		"a/b":                    "a%2Fb",
		"web 1":                  "web%201",
		"../../x":                "..%2F..%2Fx",
		"":                       "unknown",
		"ü":                      "%C3%BC",
		"x\n":                    "x%0A",
		"100%":                   "100%25",
		"h-W-0000000001":         "h-W-0000000001",
		strings.Repeat("/", 100): strings.Repeat("%2F", 66),
	} {
		t.Run(want, func(t *testing.T) {
			w := newFixture(t)
			c := w.client(host)
			lock := w.lock(c).granted()
			require.Equal(t, want+"-W-0000000000", lock.Node())
			w.listed("q", want+"-W-0000000000")
			reader := w.rlock(c)
			reader.waitsBehind(lock.Node())
			w.unlock(lock)
			w.unlock(reader.granted())
			require.Equal(t, []string{w.path("q")}, w.server.Tree(t, w.root))
		})
	}
}

func TestAWrongPasswordIsReportedAndNotRepeated(t *testing.T) {
	w := newFixture(t)
	dsn := func(password, params string) string {
		return "zk://alice:" + password + "@" + w.server.Addr() + w.root + "?" + params
	}
	owner := w.open(dsn("r1ght", "acl=digest"), "web1")
	w.unlock(w.lock(owner).granted())
	stranger := w.open(dsn("wr0ng", "acl=digest"), "web2")
	nobody := w.client("web3")
	w.unchanged()
	for _, c := range []*dlock.Client{stranger, nobody} {
		for call, err := range callAll(w.soon(), c.RWMutex("q")) {
			require.Error(t, err, call)
			require.NotErrorIs(t, err, dlock.ErrTimeout, call)
			require.NotErrorIs(t, err, dlock.ErrUnavailable, call)
			require.NotErrorIs(t, err, dlock.ErrLocked, call)
			require.ErrorIs(t, err, zk.ErrNoAuth, call)
			requireWords(t, err, "dlock: q: ", w.path("q"), "password", "ACL")
			assert.NotContains(t, err.Error(), "wr0ng")
		}
	}
	w.unlock(w.lock(owner).granted())
}

func TestAMissingPermissionIsNamed(t *testing.T) {
	w := newFixture(t)
	readOnly := zk.WorldACL(zk.PermRead)
	_, err := w.raw.Create(w.path("closed"), nil, 0, readOnly)
	require.NoError(t, err)
	c := w.client("web1")
	w.unchanged()
	for _, queue := range []string{"closed", "closed/below", "closed/far/below"} {
		_, err := c.RWMutex(queue).Lock(w.soon())
		requireWords(t, err, "dlock: "+queue+": ", w.path("closed"), "CREATE", "ACL")
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.NotErrorIs(t, err, dlock.ErrTimeout)
	}
	w.unlock(w.contend(w.client("web2"), "open", dlock.Exclusive).granted())
	require.NoError(t, w.raw.Delete(w.path("open"), -1))
}

func TestWithoutPermissionToDeleteUnlockFailsAtOnce(t *testing.T) {
	w := newFixture(t)
	_, err := w.raw.Create(w.path("q"), nil, 0, zk.WorldACL(zk.PermRead|zk.PermCreate|zk.PermWrite))
	require.NoError(t, err)
	c := w.client("web1")
	lock := w.lock(c).granted()
	err = lock.Unlock()
	requireWords(t, err, "dlock: q: ", lock.Node(), "DELETE", "stays until the session ends")
	require.ErrorIs(t, err, fs.ErrPermission)
	require.NotErrorIs(t, err, dlock.ErrUnavailable, "another try would not help")
	require.ErrorIs(t, lock.Err(), dlock.ErrNotHeld)
	require.NoError(t, c.Close())
	w.listed("q")
}

func TestTheDataOfAQueuesNodeIsKept(t *testing.T) {
	w := newFixture(t)
	const data = "an application's configuration"
	_, err := w.raw.Create(w.path("q"), []byte(data), 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	c := w.clients(2)
	for range 3 {
		lock := w.lock(c[0]).granted()
		k := w.lock(c[1])
		k.waitsBehind(lock.Node())
		w.unlock(lock)
		next := k.granted()
		require.Greater(t, next.Token(), lock.Token())
		w.unlock(next)
	}
	kept, stat, err := w.raw.Get(w.path("q"))
	require.NoError(t, err)
	require.Equal(t, data, string(kept))
	require.Zero(t, stat.Version, "never written")
}

func TestAQueueThatMayNotBeWrittenWorks(t *testing.T) {
	w := newFixture(t)
	_, err := w.raw.Create(w.path("q"), nil, 0, zk.WorldACL(zk.PermRead|zk.PermCreate|zk.PermDelete))
	require.NoError(t, err)
	c := w.clients(2)
	lock := w.lock(c[0]).granted()
	k := w.rlock(c[1])
	k.waitsBehind(lock.Node())
	w.unlock(lock)
	w.unlock(k.granted())
	w.listed("q")
}

func TestTheLongestDataFitsAndLongerDataIsRefusedWithoutARequest(t *testing.T) {
	w := newFixture(t)
	c, proxy := w.proxied("web1")
	held := w.contend(c, "other", dlock.Exclusive).granted()
	w.unlock(w.lock(c).granted())
	for name, m := range map[string]*dlock.RWMutex{
		"text":  c.RWMutex("q", dlock.WithData([]byte(strings.Repeat("x", 64<<10+1)))),
		"bytes": c.RWMutex("q", dlock.WithData([]byte(strings.Repeat("\xff", 2<<20)))),
	} {
		_, err := m.Lock(w.soon())
		requireWords(t, err, "dlock: q: ", "the data of a lock may have at most 65536 bytes, got ")
		require.NotErrorIs(t, err, dlock.ErrTimeout, name)
		require.NotErrorIs(t, err, dlock.ErrUnavailable, name)
	}
	require.Len(t, proxy.Sessions(), 1, "one connection throughout")
	require.NoError(t, held.Err())
	w.listed("q")
	w.unlock(held)
	for _, fill := range []string{"x", "\x01", "\xff"} { // stored verbatim, escaped and as base64
		lock, err := c.RWMutex("q", dlock.WithData([]byte(strings.Repeat(fill, 64<<10)))).Lock(w.soon())
		require.NoError(t, err)
		w.unlock(lock)
	}
	require.Len(t, proxy.Sessions(), 1, "one connection throughout")
}

func TestEveryCallOfAClosedClientReturnsErrClosed(t *testing.T) {
	w := newFixture(t)
	c := w.client("web1")
	m := c.RWMutex("q")
	lock := w.lock(c).granted()
	require.NoError(t, c.Close())
	require.NoError(t, c.Close())
	w.listed("q")
	w.unchanged()
	for call, err := range callAll(w.soon(), m) {
		require.ErrorIs(t, err, dlock.ErrClosed, call)
		requireWords(t, err, "dlock: q: ")
	}
	require.ErrorIs(t, c.Ping(w.soon()), dlock.ErrClosed)
	require.ErrorIs(t, lock.Unlock(), dlock.ErrClosed)
	require.ErrorIs(t, lock.Unlock(), dlock.ErrClosed)
}

func TestASecondUnlockIsRefusedAndChangesNothing(t *testing.T) {
	w := newFixture(t)
	c := w.clients(2)
	lock := w.lock(c[0]).granted()
	w.unlock(lock)
	next := w.lock(c[1]).granted()
	for range 3 {
		err := lock.Unlock()
		require.ErrorIs(t, err, dlock.ErrNotHeld)
		requireWords(t, err, "dlock: q: ")
	}
	require.ErrorIs(t, lock.Downgrade(w.soon()), dlock.ErrNotHeld)
	w.listed("q", next.Node())
	w.unlock(next)
}

func TestANilContextIsAnError(t *testing.T) {
	w := newFixture(t)
	c := w.client("web1")
	w.unchanged()
	var none context.Context
	for call, err := range callAll(none, c.RWMutex("q")) {
		requireWords(t, err, "dlock: q: ", "nil context")
		require.NotErrorIs(t, err, dlock.ErrTimeout, call)
	}
	requireWords(t, c.Ping(none), "nil context")
}

func TestAnEndedContextTakesNothing(t *testing.T) {
	w := newFixture(t)
	c, proxy := w.proxied("web1")
	w.unchanged()
	requests := proxy.Requests()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := c.RWMutex("q").Lock(ctx)
	require.ErrorIs(t, err, context.Canceled)
	_, err = c.RWMutex("q").TryRLock(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, requests, proxy.Requests())
}

func TestAPanicUnderTheLockUnlocksAndPropagates(t *testing.T) {
	w := newFixture(t)
	c := w.client("web1")
	require.PanicsWithValue(t, "boom", func() {
		_ = c.RWMutex("q").WithLock(w.soon(), func(context.Context, *dlock.Lock) error { panic("boom") })
	})
	w.listed("q")
	boom := errors.New("boom")
	require.ErrorIs(t, c.RWMutex("q").WithRLock(w.soon(), func(context.Context, *dlock.Lock) error { return boom }), boom)
	w.listed("q")
}

func TestAServerThatIsNotZooKeeperIsReported(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(conn, "HTTP/1.1 400 Bad Request\r\n\r\n")
			conn.Close()
		}
	}()
	c, err := dlock.Open("zk", "zk://"+l.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	_, err = c.RWMutex("q").Lock(context.Background())
	requireWords(t, err, "dlock: q: ", l.Addr().String(), "not a ZooKeeper")
	require.NotErrorIs(t, err, dlock.ErrUnavailable)
}
