package etcddriver

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/testenv"
)

func connectError(t *testing.T, dsn string) error {
	t.Helper()
	c, err := Driver{}.OpenConnector(dsn)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	s, err := c.Connect(ctx)
	require.Nil(t, s)
	require.Error(t, err)
	require.NoError(t, ctx.Err(), "the error came only with the end of ctx")
	require.NotContains(t, err.Error(), "geheim")
	return err
}

func TestAUserMayUseThePrefixAndNothingElse(t *testing.T) {
	server := etcdtest.Start(t)
	server.EnableAuth("root", "shop", "geheim", "locks/")
	at := server.Addr()

	s := connectTo(t, "etcd://shop:geheim@"+at+"/locks")
	j := create(t, s, "q", "h-W-")
	_, err := s.WatchQueue(within(t), "q")
	require.NoError(t, err)
	require.NoError(t, s.Delete(within(t), "q", j.Place, driver.Released))
	require.NoError(t, beat(within(t), s))
	require.NoError(t, s.Close())

	asked := 0
	c, err := Driver{Password: func(context.Context) (string, error) { asked++; return "geheim", nil }}.OpenConnector("etcd://shop@" + at + "/locks")
	require.NoError(t, err)
	made, err := c.Connect(within(t))
	require.NoError(t, err)
	require.NoError(t, made.Close())
	require.Equal(t, 1, asked, "how often the session has asked for the password")

	for dsn, want := range map[string]string{
		"etcd://shop:geheim2@" + at + "/locks": "invalid user ID or password",
		"etcd://else:geheim@" + at + "/locks":  "invalid user ID or password",
		"etcd://" + at + "/locks":              "user name is empty",
		"etcd://shop:geheim@" + at + "/other":  `permission denied; the role of the user needs readwrite for all keys that begin with "other/"`,
	} {
		err := connectError(t, dsn)
		require.ErrorContains(t, err, want)
		require.NotErrorIs(t, err, driver.ErrUnavailable, dsn)
	}
}

// etcd drops all tokens when authentication is turned off and on again.
func TestASessionLogsInAgainIfItsTokenIsNotValid(t *testing.T) {
	server := etcdtest.Start(t)
	server.EnableAuth("root", "shop", "geheim", "locks/")
	s := connectTo(t, "etcd://shop:geheim@"+server.Addr()+"/locks?"+longSession)
	server.Etcdctl("--user", "root:root", "auth", "disable")
	server.Etcdctl("auth", "enable")
	eventually(t, func() bool { // requests may time out on a slow machine
		_, err := s.List(within(t), "q")
		return err == nil
	})
}

// The token of an open stream expires after five minutes without a new watch.
func TestAStreamWhoseTokenHasExpiredIsReplaced(t *testing.T) {
	server := etcdtest.Start(t)
	server.EnableAuth("root", "shop", "geheim", "locks/")
	s := connectTo(t, "etcd://shop:geheim@"+server.Addr()+"/locks?"+longSession)
	followed := s.follow(t, "followed")
	first := s.b.listener.currentStream()
	server.Etcdctl("--user", "root:root", "auth", "disable")
	server.Etcdctl("auth", "enable")

	var err error
	eventually(t, func() bool { // requests may time out on a slow machine
		_, err = s.WatchQueue(within(t), "q")
		return err == nil || !errors.Is(err, driver.ErrUnavailable)
	})
	require.NoError(t, err)
	eventually(t, func() bool { return s.b.Listening("q", true) })
	require.NotEqual(t, first, s.b.listener.currentStream())
	create(t, s, "followed", "h-W-")
	ended(t, followed)
}

// A user with a read-only role can begin a session but not create nodes.
func TestARoleThatMayOnlyReadIsToldWhatItNeeds(t *testing.T) {
	server := etcdtest.Start(t)
	server.EnableAuth("root", "shop", "geheim", "locks/")
	server.Etcdctl("--user", "root:root", "role", "grant-permission", "--prefix", "locks", "read", "other/")
	s := connectTo(t, "etcd://shop:geheim@"+server.Addr()+"/other")
	_, err := s.Create(within(t), "q", driver.NodeSpec{Prefix: "h-W-"})
	require.ErrorContains(t, err, `create in "q": etcdserver: permission denied; the role of the user needs readwrite for all keys of the prefix`)
	require.NotErrorIs(t, err, driver.ErrUnavailable)
}

// Checking a password takes about 50 ms of the server's CPU time.
func TestHeartbeatsDoNotLogIn(t *testing.T) {
	server := etcdtest.Start(t)
	server.EnableAuth("root", "shop", "geheim", "locks/")
	s := connectTo(t, "etcd://shop:geheim@"+server.Addr()+"/locks?"+longSession)
	require.NoError(t, beat(within(t), s))
	logins := func() float64 {
		return server.Metric("grpc_server_started_total", `grpc_method="Authenticate"`)
	}
	before := logins()
	for range 5 {
		require.NoError(t, beat(within(t), s))
	}
	require.Equal(t, before, logins())
}

func TestTLSWithCertificatesOfBothSides(t *testing.T) {
	certs := testenv.NewCerts(t)
	server := etcdtest.Start(t, etcdtest.WithTLS(certs, certs.Server, true))
	at := "etcd://" + server.Addr() + "/locks"
	pair := func(p testenv.Pair) string { return "&tls_cert=" + p.Cert + "&tls_key=" + p.Key }
	tls := at + "?tls=true&tls_ca=" + certs.CA

	s := connectTo(t, tls+pair(certs.Client))
	create(t, s, "q", "h-W-")
	own, err := Driver{TLS: certs.ClientConfig(t)}.OpenConnector(at)
	require.NoError(t, err)
	made, err := own.Connect(within(t))
	require.NoError(t, err)
	require.NoError(t, made.Close())

	for name, c := range map[string]struct{ dsn, want string }{
		"no certificate":            {tls, "tls: "},
		"certificate of another CA": {tls + pair(certs.Stranger), "tls: "},
		"name of another server":    {tls + pair(certs.Client) + "&tls_server_name=other.example", "x509: "},
	} {
		t.Run(name, func(t *testing.T) {
			err := connectError(t, c.dsn)
			require.ErrorContains(t, err, c.want)
			require.NotErrorIs(t, err, driver.ErrUnavailable)
		})
	}
	require.ErrorIs(t, connectError(t, at), driver.ErrUnavailable, "a client without TLS sees only that the connection breaks")
}

func TestTLSOfAServerThatHasNone(t *testing.T) {
	err := connectError(t, "etcd://"+etcdtest.Shared(t).Addr()+"?tls=true")
	require.ErrorContains(t, err, "authentication handshake failed: ") // followed by an EOF or a connection reset
	require.ErrorIs(t, err, driver.ErrUnavailable, "a server that is about to stop does the same")
}

func TestAServerThatIsDownIsUnavailable(t *testing.T) {
	port, err := testenv.FreePort()
	require.NoError(t, err)
	require.ErrorIs(t, connectError(t, "etcd://"+testenv.Loopback(port)), driver.ErrUnavailable)
}

// The servers are named even if the caller's deadline expires first.
func TestTheErrorOfASilentServerSaysWhere(t *testing.T) {
	t.Parallel()
	var addrs []string
	for range 2 {
		l, err := testenv.Listen()
		require.NoError(t, err)
		t.Cleanup(func() { l.Close() })
		addrs = append(addrs, l.Addr().String())
	}
	one, two := addrs[0], addrs[0]+","+addrs[1]
	for name, c := range map[string]struct{ login, at, tls string }{
		"one server":  {"", one, ""},
		"two servers": {"", two, ""},
		"login":       {"shop:geheim@", two, ""},
		"TLS":         {"shop:geheim@", two, "&tls=true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, want := "etcd://"+c.login+c.at+"/locks?session_timeout=1s"+c.tls, "no answer of etcd at "+c.at+": "
			err := connectError(t, dsn)
			require.ErrorIs(t, err, driver.ErrUnavailable)
			require.ErrorContains(t, err, want)

			c, err := Driver{}.OpenConnector(dsn)
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			_, err = c.Connect(ctx)
			require.ErrorIs(t, err, driver.ErrUnavailable)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "geheim")
		})
	}
}

// By default, the client library and gRPC log to standard error.
func TestNothingIsLogged(t *testing.T) {
	out, end, err := os.Pipe()
	require.NoError(t, err)
	stderr := os.Stderr
	os.Stderr = end
	defer func() { os.Stderr = stderr }()

	p := testenv.NewProxy(t, etcdtest.Shared(t).Addr(), nil)
	s := connectTo(t, "etcd://"+p.Addr()+"/quiet?session_timeout=1m")
	_, err = s.WatchQueue(within(t), "q")
	require.NoError(t, err)
	p.Refuse()
	p.DropConnections()
	_, err = s.List(within(t), "q")
	require.ErrorIs(t, err, driver.ErrUnavailable)
	for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		require.Error(t, beat(within(t), s))
	}
	s.Lease().End(errExpired)
	require.Error(t, s.Close())
	end.Close()
	text, err := io.ReadAll(out)
	require.NoError(t, err)
	require.Empty(t, strings.TrimSpace(string(text)))
}

func TestASessionSurvivesARotation(t *testing.T) {
	certs := testenv.NewCerts(t)
	server := etcdtest.Start(t, etcdtest.WithTLS(certs, certs.Server, true))
	server.EnableAuth("root", "shop", "one", "locks/")
	testenv.Rotation{
		Driver: func(f func(context.Context) (string, error)) driver.Driver { return Driver{Password: f} },
		DSN: func(password string, c *testenv.Certs) string {
			return "etcd://shop@" + server.Addr() + "/locks?" + password + longSession + "&tls=true&tls_ca=" + c.CA + "&tls_cert=" + c.Client.Cert + "&tls_key=" + c.Client.Key
		},
		Certs: certs,
		Password: func(text string) {
			server.Etcdctl("--user", "root:root", "user", "delete", "shop")
			server.Etcdctl("--user", "root:root", "user", "add", "shop:"+text)
			server.Etcdctl("--user", "root:root", "user", "grant-role", "shop", "locks")
			server.Restart()
		},
		Certificates: server.Restart,
		Refused:      "invalid user ID or password",
	}.Run(t)
}
