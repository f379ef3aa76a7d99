package redisdriver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/internal/doctortest"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/testenv"
)

func lockOnce(t *testing.T, dsn string) error {
	t.Helper()
	client, err := dlock.Open("redis", asNew(dsn))
	require.NoError(t, err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	lock, err := client.RWMutex("stock/42").Lock(ctx)
	if err != nil {
		return err
	}
	return lock.Unlock()
}

func TestUsersAndTheirRights(t *testing.T) {
	const rights = "+@connection +@scripting +@read +@write +@sortedset +@hash +info +time +publish +subscribe"
	server := redistest.Start(t, redistest.With("requirepass hunter2",
		"user app on >hunter3 ~{dlock}:* &{dlock}:* "+rights+" +config|get", "user quiet on >hunter3 ~{dlock}:* &{dlock}:* "+rights,
		"user keys on >hunter3 ~other:* &* +@all", "user commands on >hunter3 ~* &* +@all -evalsha",
		"user channels on >hunter3 ~* &other +@all", "user scripts on >hunter3 ~* &* +@all -zadd"))
	for _, login := range []string{":hunter2", "app:hunter3", "quiet:hunter3"} {
		assert.NoError(t, lockOnce(t, "redis://"+login+"@"+server.Addr()), login)
	}
	const remedy = "docs/stores/redis.md lists the permissions that the user needs"
	for login, want := range map[string]string{
		"": "NOAUTH", ":hunter9": "WRONGPASS", "app:hunter9": "WRONGPASS",
		"keys:hunter3": remedy, "commands:hunter3": remedy, "channels:hunter3": remedy, "scripts:hunter3": remedy,
	} {
		err := lockOnce(t, "redis://"+login+"@"+server.Addr())
		assert.ErrorContains(t, err, want, login)
		assert.NotErrorIs(t, err, dlock.ErrUnavailable, login)
		assert.NotContains(t, err.Error(), "hunter", login)
	}
}

func TestTLS(t *testing.T) {
	certs := testenv.NewCerts(t)
	server := redistest.Start(t, redistest.WithTLS(certs))
	dsn := func(ca string, more ...string) string {
		q := url.Values{"tls_ca": {ca}}
		for i := 0; i < len(more); i += 2 {
			q.Set(more[i], more[i+1])
		}
		return "rediss://" + server.SecureAddr() + "?" + q.Encode()
	}
	require.NoError(t, lockOnce(t, dsn(certs.CA)))
	require.NoError(t, lockOnce(t, dsn(certs.CA, "tls_cert", certs.Client.Cert, "tls_key", certs.Client.Key, "tls_server_name", "localhost")))
	require.NoError(t, lockOnce(t, dsn(certs.OtherCA, "skip_verify", "true")))
	for name, bad := range map[string]string{
		"another name":         dsn(certs.CA, "tls_server_name", "other.example"),
		"a key of another one": dsn(certs.CA, "tls_cert", certs.Client.Cert, "tls_key", certs.Stranger.Key),
	} {
		err := lockOnce(t, bad)
		assert.Error(t, err, name)
		assert.NotErrorIs(t, err, dlock.ErrUnavailable, name)
	}

	// If only one side uses TLS, Redis waits for the rest of a command.
	for name, bad := range map[string]string{
		"a stranger":         dsn(certs.CA, "tls_cert", certs.Stranger.Cert, "tls_key", certs.Stranger.Key),
		"a port without TLS": "rediss://" + server.Addr() + "?dial_timeout=200ms",
		"TLS without a word": "redis://" + server.SecureAddr() + "?read_timeout=200ms",
	} {
		_, err := testenv.Connect(t, Driver{}, bad)
		assert.Error(t, err, name)
	}
}

// The fake server stays connected, so that the client can read its TLS alert.
func TestARefusedCertificateDoesNotPass(t *testing.T) {
	certs := testenv.NewCerts(t)
	config := &tls.Config{Certificates: []tls.Certificate{certs.Server.Load(t)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: x509.NewCertPool()}
	config.MaxVersion = tls.VersionTLS12 // in TLS 1.3, the client's handshake would succeed
	served := make(chan error, 100)
	addr := doctortest.Listen(t, func(conn net.Conn) {
		served <- tls.Server(conn, config).HandshakeContext(t.Context())
		<-t.Context().Done()
	})
	q := url.Values{"tls_ca": {certs.CA}, "tls_cert": {certs.Stranger.Cert}, "tls_key": {certs.Stranger.Key}}
	_, err := testenv.Connect(t, Driver{}, "rediss://"+addr+"?"+q.Encode())
	require.ErrorAs(t, <-served, new(*tls.CertificateVerificationError))
	require.ErrorContains(t, err, "remote error: tls: ")
	require.NotErrorIs(t, err, driver.ErrUnavailable)
}

// The address is named even if the caller's deadline expires first.
func TestTheErrorOfAServerThatDoesNotAnswerSaysWhere(t *testing.T) {
	plain, silent, far := redistest.Shared(t).Addr(), silentServer(t), unreachable(t)
	handshake := "TLS with " + plain + ": no answer to the handshake; if the server has no TLS, write redis://"
	hint := "; if this port is for TLS, write rediss://"
	for _, c := range []struct{ dsn, slow, want, cut string }{
		{"rediss://" + plain, "?dial_timeout=200ms", handshake, handshake},
		{"redis://" + silent, "?read_timeout=200ms", "no answer from " + silent + ": i/o timeout" + hint, "no answer from " + silent + hint},
		{"redis://" + far, "?dial_timeout=200ms", "dial tcp " + far + ": i/o timeout", "no connection with " + far},
		{"redis://" + silent, "?master_name=locks&dial_timeout=200ms", "no Sentinel knows the master \"locks\": " + silent + ": no answer", "no answer from the Sentinel " + silent},
	} {
		// Dials may be slow on a busy machine, so the time limit grows.
		try := func(ctx context.Context, limit string) error {
			connector, err := Driver{}.OpenConnector(c.dsn + strings.ReplaceAll(c.slow, "200ms", limit))
			require.NoError(t, err)
			_, err = connector.Connect(ctx)
			require.ErrorIs(t, err, driver.ErrUnavailable)
			return err
		}
		grow := func(want string, try func(time.Duration) error) {
			for d := 200 * time.Millisecond; ; d *= 2 {
				if err := try(d); strings.Contains(err.Error(), want) || d > 10*time.Second {
					require.ErrorContains(t, err, want)
					return
				}
			}
		}
		grow(c.want, func(d time.Duration) error { return try(t.Context(), d.String()) })
		grow(c.cut, func(d time.Duration) error {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer time.AfterFunc(d, func() { cancel(errGivenUp) }).Stop()
			err := try(ctx, "10m")
			require.ErrorIs(t, err, errGivenUp)
			return err
		})
	}
}

var errGivenUp = errors.New("given up by the test")

func TestRepliesThatPass(t *testing.T) {
	server := redistest.Start(t)
	s := newStore(t, server, "session_timeout=10s")
	session := s.session()
	create := func() error {
		_, err := session.Create(t.Context(), "stock/42", driver.NodeSpec{Prefix: "web-W-", Data: []byte("x")})
		return err
	}
	server.Do("CONFIG", "SET", "maxmemory", "1")
	require.ErrorIs(t, create(), driver.ErrUnavailable, "OOM")
	server.Do("CONFIG", "SET", "maxmemory", "0")
	server.Do("CONFIG", "SET", "min-replicas-to-write", "1")
	require.ErrorIs(t, create(), driver.ErrUnavailable, "NOREPLICAS")
	server.Do("CONFIG", "SET", "min-replicas-to-write", "0")
	require.NoError(t, create())
	server.Do("SET", s.key("q:other"), "a string")
	_, err := session.List(t.Context(), "other")
	require.ErrorContains(t, err, "WRONGTYPE")
	require.NotErrorIs(t, err, driver.ErrUnavailable)
}

type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func logged(f func()) string {
	var b buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&b, nil)))
	defer slog.SetDefault(before)
	f()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func TestTheDriverLogsWhatTheServerCannotProtect(t *testing.T) {
	server := redistest.Start(t, redistest.With("user quiet on nopass ~* &* +@all -config"))
	text := func(at string) string {
		return logged(func() { require.NoError(t, lockOnce(t, "redis://"+at)) })
	}
	require.Empty(t, text(server.Addr()), "no persistence is needed")
	require.Contains(t, text("quiet:x@"+server.Addr()), "does not show its settings")

	c, err := Driver{}.OpenConnector("redis://quiet:x@" + server.Addr() + "?empty_is_new=true")
	require.NoError(t, err)
	twice := logged(func() {
		for range 2 {
			session, err := c.Connect(t.Context())
			require.NoError(t, err)
			require.NoError(t, session.Close())
		}
	})
	require.Equal(t, 1, bytes.Count([]byte(twice), []byte("\n")), "once for a connector")

	at := redistest.StartSentinel(t, "locks", server).Addr() + "?master_name=locks"
	require.Contains(t, text(at), "set the parameter replicas to half the number")
}

func TestAServerThatEvictsLocksIsRefused(t *testing.T) {
	server := redistest.Start(t)
	server.Do("CONFIG", "SET", "maxmemory", "1gb")
	server.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	err := lockOnce(t, "redis://"+server.Addr())
	require.ErrorContains(t, err, "the server has maxmemory-policy allkeys-lru: if its memory is full, it removes locks that are held: set maxmemory-policy noeviction")
	require.NotErrorIs(t, err, dlock.ErrUnavailable)
	server.Do("CONFIG", "SET", "maxmemory-policy", "volatile-lru")
	require.NoError(t, lockOnce(t, "redis://"+server.Addr()))

	dsn := "redis://" + server.Addr() + "?empty_is_new=true&" + longTimeout
	session := testenv.Session(t, Driver{}, dsn)
	server.Do("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
	_, err = testenv.Connect(t, Driver{}, dsn)
	require.ErrorContains(t, err, "allkeys-lru", "each session checks the settings")
	require.NoError(t, beat(t.Context(), session), "less than a minute later")
	inside(session).looked.Store(new(time.Time))
	require.ErrorIs(t, beat(t.Context(), session), driver.ErrSessionEnded)
}

func TestALimitOfRequestsDoesNotDelayHeartbeats(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout+"&pool_size=1")
	made := s.session()
	hold := s.proxy(made).HoldRequests(is(faults.OpList))
	first := make(chan error, 1)
	go func() {
		_, err := made.List(t.Context(), "stock/42")
		first <- err
	}()
	<-hold.Held()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := made.List(ctx, "stock/42")
	require.ErrorContains(t, err, "all 1 requests that the session may make at once were under way: raise pool_size")
	require.NoError(t, beat(t.Context(), made))
	hold.Release()
	require.NoError(t, <-first)
}

// If go-redis saw failed dials, it would redial with an ended context.
func TestASessionFindsItsServerAgain(t *testing.T) {
	server := redistest.Start(t, redistest.Durable())
	logged := dialsLogged.Load()
	made := testenv.Session(t, Driver{}, "redis://"+server.Addr()+"?empty_is_new=true&session_timeout=10m&pool_size=1")
	list := func() error {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		_, err := made.List(ctx, "stock/42")
		return err
	}
	server.Kill()
	for range 5 {
		require.ErrorIs(t, list(), driver.ErrUnavailable)
	}
	server.Restart()
	require.Eventually(t, func() bool { return errors.Is(list(), driver.ErrSessionEnded) }, 10*time.Second, time.Millisecond)
	// go-redis logs a failed dial only if it dials in the background.
	require.Equal(t, logged, dialsLogged.Load(), "go-redis has learned of a dial that has failed")
}

func leadTo(s driver.Session, addr string) {
	link := inside(s).link
	link.mu.Lock()
	link.addrs = []string{addr}
	link.mu.Unlock()
	link.drop()
}

// A session must pause between dials even if each connection breaks at once.
func TestASessionThatHasLostItsServerDialsNowAndThen(t *testing.T) {
	t.Parallel()
	s := newStore(t, redistest.Shared(t), "session_timeout=4s&read_timeout=1m")
	made, joined := s.join(t, "stock/42")
	_, err := made.Watch(t.Context(), "stock/42", joined.Place)
	require.NoError(t, err)
	var dials atomic.Int64
	leadTo(made, doctortest.Listen(t, func(net.Conn) { dials.Add(1) }))
	_, err = made.Create(t.Context(), "stock/43", spec())
	require.Error(t, err)
	<-made.Done()
	t.Logf("%d dials in 3 s", dials.Load())
	require.Less(t, dials.Load(), int64(150))
}

// unreachable returns an address that neither accepts nor refuses connections.
func unreachable(t *testing.T) string {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	require.NoError(t, err)
	t.Cleanup(func() { syscall.Close(socket) })
	require.NoError(t, syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	require.NoError(t, syscall.Listen(socket, 0))
	name, err := syscall.Getsockname(socket)
	require.NoError(t, err)
	addr := testenv.Loopback(name.(*syscall.SockaddrInet4).Port)
	for failed := 0; failed < 3; failed++ { // with a full backlog, the kernel drops connections
		for { // a slow dial may time out early
			conn, err := net.DialTimeout("tcp", addr, 100*time.Millisecond)
			if err != nil {
				break
			}
			t.Cleanup(func() { conn.Close() })
			failed = 0
		}
	}
	return addr
}

func silentServer(t *testing.T) string {
	return doctortest.Listen(t, func(conn net.Conn) { io.Copy(io.Discard, conn) })
}

func TestOneDeadServerDoesNotHideTheOthers(t *testing.T) {
	server := redistest.Start(t)
	sentinel := redistest.StartSentinel(t, "locks", server)
	for name, dead := range map[string]string{"unreachable": unreachable(t), "silent": silentServer(t)} {
		for _, dsn := range []string{
			"redis://" + dead + "?addr=" + server.Addr() + "&dial_timeout=2s&read_timeout=500ms",
			"redis://" + dead + "?addr=" + sentinel.Addr() + "&master_name=locks&dial_timeout=3s&read_timeout=500ms",
		} {
			require.NoError(t, lockOnce(t, dsn), "%s: %s", name, dsn)
		}
	}
}

// The driver's timeout is no context error, because the caller's context has
// not ended.
func TestALimitOfTheDriverIsNotTheDeadlineOfTheCaller(t *testing.T) {
	server := redistest.Shared(t)
	check := func(what string, err error) {
		assert.ErrorIs(t, err, driver.ErrUnavailable, what)
		assert.NotErrorIs(t, err, context.DeadlineExceeded, what)
		assert.NotErrorIs(t, err, context.Canceled, what)
	}
	far := unreachable(t)
	for _, dsn := range []string{
		"redis://" + far + "?dial_timeout=100ms", "rediss://" + silentServer(t) + "?dial_timeout=100ms",
		"redis://" + far + "?dial_timeout=100ms&master_name=locks",
	} {
		_, err := testenv.Connect(t, Driver{}, dsn)
		check(dsn, err)
	}
	made := testenv.Session(t, Driver{}, "redis://"+server.Addr()+"?dial_timeout=3s&empty_is_new=true&session_timeout=10m&namespace="+newNamespace())
	leadTo(made, far)
	_, err := made.List(context.Background(), "stock/42")
	check("List", err)
	check("Close", made.Close())
	leadTo(made, server.Addr())
	require.NoError(t, made.Close())
}

func TestAConnectDoesNotWaitForASubscriptionForEver(t *testing.T) {
	const opSubscribe = 1
	p := redistest.NewProxy(t, redistest.Shared(t).Addr(), func(command []string) int32 {
		if len(command) > 0 && strings.EqualFold(command[0], "subscribe") {
			return opSubscribe
		}
		return 0
	})
	hold := p.HoldReplies(func(op int32) bool { return op == opSubscribe })
	defer hold.Release()
	_, err := testenv.Connect(t, Driver{}, "redis://"+p.Addr()+"?empty_is_new=true&read_timeout=1s")
	require.ErrorIs(t, err, driver.ErrUnavailable)
	require.NotErrorIs(t, err, context.DeadlineExceeded, "Connect has waited for the context of its caller")
}

// The caller must retry if one server refuses but another is only down.
func TestOneRefusalDoesNotHideThatOthersMayAnswerLater(t *testing.T) {
	certs := testenv.NewCerts(t)
	server := redistest.Start(t, redistest.WithTLS(certs))
	sentinel := redistest.StartSentinel(t, "locks", server)
	port, err := testenv.FreePort()
	require.NoError(t, err)
	down := testenv.Loopback(port)
	for _, c := range []struct{ scheme, refuses, params string }{
		{"rediss://", server.SecureAddr(), "&tls_ca=" + url.QueryEscape(certs.OtherCA)},
		{"redis://", sentinel.Addr(), "&master_name=others"},
	} {
		for addrs, unavailable := range map[string]bool{
			c.refuses + "?addr=" + down:      true,
			down + "?addr=" + c.refuses:      true,
			c.refuses + "?addr=" + c.refuses: false,
		} {
			_, err := testenv.Connect(t, Driver{}, c.scheme+addrs+c.params)
			assert.Error(t, err)
			assert.Equal(t, unavailable, errors.Is(err, driver.ErrUnavailable), "%s: %v", addrs, err)
		}
	}
}

func TestAServerThatClosesAConnectionSaysWhy(t *testing.T) {
	for reply, unavailable := range map[string]bool{"ERR max number of clients reached": true, "DENIED Redis is running in protected mode": false} {
		addr := doctortest.Listen(t, func(conn net.Conn) {
			_, _ = conn.Read(make([]byte, 1000)) // the handshake
			_, _ = conn.Write([]byte("-" + reply + "\r\n"))
		})
		for _, login := range []string{"", "user:password@"} {
			_, err := testenv.Connect(t, Driver{}, "redis://"+login+addr)
			assert.ErrorContains(t, err, reply)
			assert.Equal(t, unavailable, errors.Is(err, driver.ErrUnavailable), "%v", err)
			assert.NotContains(t, err.Error(), "rediss")
		}
	}
}

// A missing layout counts as 0, because early versions of dlock stored none.
func TestKeysOfAnotherLayoutAreRefused(t *testing.T) {
	s := newStore(t, redistest.Shared(t), longTimeout)
	made := s.session()
	require.Equal(t, "1", s.server.Do("HGET", s.key("gen"), "layout"))
	for found, change := range map[string][]string{"2": {"HSET", s.key("gen"), "layout", "2"}, "0": {"HDEL", s.key("gen"), "layout"}} {
		s.server.Do(change...)
		_, err := s.Connect(t.Context())
		require.ErrorContains(t, err, "the keys of the namespace have layout "+found+", and this version of dlock needs layout 1")
		require.NotErrorIs(t, err, driver.ErrUnavailable)
		require.NoError(t, beat(t.Context(), made))
	}
}

func TestRepliesOfProxiesAndOfOtherServers(t *testing.T) {
	for reply, want := range map[string]string{
		"upstream failure": "", "no upstream host": "", "ERR Connection refused": "", "ERR READONLY You can't write against a read only replica": "",
		"ERR Error running script: @user_script:8: script tried accessing undeclared key": "lacks scripts that compute the names of keys",
		"ERR Error compiling script: section (replication) is not supported":              "lacks INFO replication",
	} {
		addr := doctortest.Listen(t, func(conn net.Conn) {
			for n, err := 1, error(nil); n > 0 && err == nil; { // one command at a time
				if n, err = conn.Read(make([]byte, 1<<16)); n > 0 {
					_, _ = conn.Write([]byte("-" + reply + "\r\n"))
				}
			}
		})
		_, err := testenv.Connect(t, Driver{}, "redis://"+addr)
		assert.ErrorContains(t, err, reply)
		assert.ErrorContains(t, err, want)
		assert.Equal(t, want == "", errors.Is(err, driver.ErrUnavailable), "%v", err)
	}
}

func TestNothingWaitsForASilentSentinel(t *testing.T) {
	l, err := net.Listen("tcp", testenv.Loopback(0))
	require.NoError(t, err)
	defer l.Close()
	c, err := Driver{}.OpenConnector("redis://" + l.Addr().String() + "?master_name=locks&dial_timeout=10m&read_timeout=10m")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := c.Connect(ctx)
		ended <- err
	}()
	conn, err := l.Accept()
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Read(make([]byte, 1)) // the request has arrived
	require.NoError(t, err)
	cancel()
	require.ErrorIs(t, <-ended, driver.ErrUnavailable)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(10*time.Second)))
	_, err = io.Copy(io.Discard, conn)
	require.NoError(t, err, "the connection stays open")
}

func TestASessionSurvivesARotation(t *testing.T) {
	certs := testenv.NewCerts(t)
	server := redistest.Start(t, redistest.WithTLS(certs))
	server.Do("ACL", "SETUSER", "shop", "on", ">one", "~*", "&*", "+@all")
	kill := func() {
		server.Do("CLIENT", "KILL", "TYPE", "normal")
		server.Do("CLIENT", "KILL", "TYPE", "pubsub")
	}
	testenv.Rotation{
		Driver: func(f func(context.Context) (string, error)) driver.Driver { return Driver{Password: f} },
		DSN: func(password string, c *testenv.Certs) string {
			return asNew("rediss://shop@" + server.SecureAddr() + "?" + password + "session_timeout=1h&tls_ca=" + c.CA + "&tls_cert=" + c.Client.Cert + "&tls_key=" + c.Client.Key)
		},
		Certs:    certs,
		Password: func(text string) { server.Do("ACL", "SETUSER", "shop", "resetpass", ">"+text); kill() },
		Certificates: func() {
			server.Do("CONFIG", "SET", "tls-cert-file", certs.Server.Cert, "tls-key-file", certs.Server.Key, "tls-ca-cert-file", certs.CA)
			kill()
		},
		Refused: "WRONGPASS",
	}.Run(t)
}
