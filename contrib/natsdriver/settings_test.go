package natsdriver

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/doctortest"
	"github.com/dlock-go/dlock/internal/natstest"
	"github.com/dlock-go/dlock/internal/testenv"
)

func TestBadDataSourceNames(t *testing.T) {
	testenv.RefuseDSNs(t, Driver{}, "natsdriver: dsn: ", "geheim", map[string]string{
		"":                                 "the scheme is neither",
		"nats://h/a.b":                     "the name of the stream",
		"nats://h?grace=5s":                "grace is less than session_timeout",
		"nats://u:geheim@h?creds=f":        "give one of",
		"nats://h?creds=f&nkey_seed=g":     "give one of",
		"nats://h?inbox_prefix=geheim.%2A": "parameter inbox_prefix",
	})
	testenv.KeepPasswords(t, func(text string) error {
		_, err := Driver{}.OpenConnector("nats://" + text)
		return err
	}, "shop:PASSWORD@h", "shop:PASSWORD@h:1,h2/path?grace=3s", "PASSWORD@h/a b")
	c, err := Driver{}.OpenConnector("nats://u:geheim@h?session_timeout=3s")
	require.NoError(t, err)
	testenv.HideSecret(t, "geheim", c, c.(*connector).settings, c.(*connector).open())
}

func key(t *testing.T, create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
	made, err := create()
	require.NoError(t, err)
	public, err := made.PublicKey()
	require.NoError(t, err)
	return made, public
}

// sign returns a JWT with the given claims.
func sign(t *testing.T, by nkeys.KeyPair, issuer, about, claims string) string {
	code := base64.RawURLEncoding.EncodeToString
	text := code([]byte(`{"typ":"JWT","alg":"ed25519-nkey"}`)) + "." +
		code(fmt.Appendf(nil, `{"jti":"1","iat":1,"iss":%q,"sub":%q,"nats":{"version":2,%s}}`, issuer, about, claims))
	signature, err := by.Sign([]byte(text))
	require.NoError(t, err)
	return text + "." + code(signature)
}

func TestEachLoginGetsALock(t *testing.T) {
	operator, o := key(t, nkeys.CreateOperator)
	_, system := key(t, nkeys.CreateAccount)
	account, a := key(t, nkeys.CreateAccount)
	user, u := key(t, nkeys.CreateUser)
	seed, err := user.Seed()
	require.NoError(t, err)
	limits := `"type":"account","limits":{"subs":-1,"conn":-1,"data":-1,"payload":-1,"wildcards":true,"disk_storage":-1,"streams":-1,"consumer":-1}`
	dir := t.TempDir() + "/"
	require.NoError(t, os.WriteFile(dir+"seed", seed, 0o600))
	require.NoError(t, os.WriteFile(dir+"creds", fmt.Appendf(nil, "---BEGIN---\n%s\n---END---\n---BEGIN---\n%s\n---END---\n",
		sign(t, account, a, u, `"type":"user","subs":-1,"data":-1,"payload":-1`), seed), 0o600))
	for login, users := range map[string]string{
		"shop:ge%40heim@%s?":                 `authorization { users: [{user: shop, password: "ge@heim"}] }`,
		"geheim@%s?":                         `authorization { token: geheim }`,
		"%s?nkey_seed=" + dir + "seed" + "&": `authorization { users: [{nkey: ` + u + `}] }`,
		"%s?creds=" + dir + "creds" + "&": fmt.Sprintf("operator: %s\nresolver: MEMORY\nsystem_account: %s\nresolver_preload { %[2]s: %s, %s: %s }",
			sign(t, operator, o, o, `"type":"operator"`), system, sign(t, operator, o, system, `"type":"account"`), a, sign(t, operator, o, a, limits)),
	} {
		server := natstest.Start(t, natstest.With(users))
		dsn := "nats://" + strings.Replace(login, "%s", server.Addr(), 1) + "empty_is_new=true"
		lock(t, func() (*dlock.Client, error) { return dlock.Open("nats", dsn) })
		_, err := testenv.Connect(t, Driver{}, "nats://other:wrong@"+server.Addr())
		require.ErrorIs(t, err, nats.ErrAuthorization)
		require.NotErrorIs(t, err, driver.ErrUnavailable)
	}
	_, err = testenv.Connect(t, Driver{}, "nats://127.0.0.1:1?creds=/missing")
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NotErrorIs(t, err, driver.ErrUnavailable)
}

func TestASessionSurvivesARotation(t *testing.T) {
	certs := testenv.NewCerts(t)
	server := natstest.Start(t, natstest.WithTLS(certs), natstest.With(`authorization { users: [{user: shop, password: "one"}] }`))
	_, err := testenv.Connect(t, Driver{}, "tls://shop:one@"+server.Addr())
	require.ErrorContains(t, err, "certificate")
	require.NotErrorIs(t, err, driver.ErrUnavailable)
	proxy := testenv.NewProxy(t, server.Addr(), nil)
	reload := func(password string) {
		reloads := func() int { return strings.Count(server.Log(), "Reloaded server configuration") }
		before := reloads()
		server.Run("sed", "-i", `s/password: "[a-z]*"/password: "`+password+`"/`, server.File("nats.conf"))
		server.Run("kill", "-HUP", fmt.Sprint(server.Pid()))
		require.Eventually(t, func() bool { return reloads() > before }, time.Minute, 10*time.Millisecond)
		proxy.DropConnections()
	}
	testenv.Rotation{
		Driver: func(f func(context.Context) (string, error)) driver.Driver { return Driver{Password: f} },
		DSN: func(password string, c *testenv.Certs) string {
			return "tls://shop@" + proxy.Addr() + "?" + password + "session_timeout=1h&empty_is_new=true&tls_ca=" + c.CA +
				"&tls_cert=" + c.Client.Cert + "&tls_key=" + c.Client.Key
		},
		Certs: certs, Password: reload, Certificates: func() { reload("three") }, Refused: "Authorization Violation",
	}.Run(t)
}

func lock(t *testing.T, open func() (*dlock.Client, error)) {
	t.Helper()
	client, err := open()
	require.NoError(t, err)
	defer client.Close()
	l, err := client.RWMutex("q").Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, l.Unlock())
}

func TestAnExistingConnection(t *testing.T) {
	server := natstest.Shared(t)
	nc, err := nats.Connect("nats://" + server.Addr())
	require.NoError(t, err)
	defer nc.Close()
	c, err := NewConnector(nc, server.Unique("test"), "empty_is_new=true")
	require.NoError(t, err)
	lock(t, func() (*dlock.Client, error) { return dlock.NewClient(c), nil })
	require.True(t, nc.IsConnected())
	_, err = NewConnector(nc, "", "tls=true")
	require.ErrorContains(t, err, `natsdriver: parameter 1: "tls" is not known`)
	_, err = NewConnector(nil, "", "")
	require.ErrorContains(t, err, "nil")
}

func TestAMissingPermissionIsNamed(t *testing.T) {
	for denied, at := range map[string]string{
		`publish: {deny: "$JS.API.STREAM.INFO.>"}`:     "$JS.API.STREAM.INFO.locks",
		`publish: {deny: "$JS.API.CONSUMER.CREATE.>"}`: "$JS.API.CONSUMER.CREATE.locks.generation",
		`publish: {deny: "locks.s.>"}`:                 "locks.s.session-",
		`publish: {deny: "locks.q.>"}`:                 "locks.q.dlock-check",
		`subscribe: {deny: "locks.n.>"}`:               "locks.n.>",
		`subscribe: {deny: "_INBOX.>"}`:                "_INBOX.",
		`publish: {deny: "$JS.API.STREAM.MSG.GET.>"}`:  "$JS.API.STREAM.MSG.GET.locks",
	} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			server := natstest.Start(t, natstest.With(`authorization { users: [{user: u, password: p, permissions: {`+denied+`}}] }`))
			found := doctortest.Check(t, Driver{}, "nats://u:p@"+server.Addr()+"/locks?session_timeout=1s")
			found.Has(t, driver.Problem, "the user lacks a permission, see the package documentation", "let the operator allow")
			found.Has(t, driver.Problem, ` to "`+at, "let the operator allow")
		})
	}
}

func TestAStreamWithOtherSettingsIsRefused(t *testing.T) {
	server := natstest.Shared(t)
	for name, value := range map[string]any{
		"max_age": time.Hour, "max_msgs_per_subject": 2, "discard": "old", "republish": nil, "storage": "memory",
		"allow_msg_ttl": false, "subjects": []string{"%s.q.>"}, "no_ack": true,
	} {
		c := open(t, server, "empty_is_new=true")
		config := c.settings.wanted()
		config[name] = value
		if name == "subjects" {
			config[name] = []string{c.settings.subject("q/>")}
		}
		kv := c.open()
		require.NoError(t, kv.api(within(t), "STREAM.CREATE", "", config, new(any)))
		require.NoError(t, kv.Close())
		_, err := c.Connect(within(t))
		require.ErrorContains(t, err, "has the setting "+name+": ")
		require.NotErrorIs(t, err, driver.ErrUnavailable)
		doctortest.Run(t, c).Has(t, driver.Problem, name, "nats stream edit")
	}
	c := open(t, server, "empty_is_new=true")
	begun(t, c)
	c.settings.replicas = 3
	_, err := c.Connect(within(t))
	require.ErrorContains(t, err, "num_replicas: 1, and locks need 3")
}

func TestAnOldServerIsRefused(t *testing.T) {
	l, err := testenv.Listen()
	require.NoError(t, err)
	defer l.Close()
	go func() {
		if conn, err := l.Accept(); err == nil {
			_, _ = fmt.Fprint(conn, `INFO {"server_id":"old","version":"2.11.9","headers":true,"max_payload":1000}`, "\r\nPONG\r\n")
			_, _ = io.Copy(io.Discard, conn)
		}
	}()
	_, err = testenv.Connect(t, Driver{}, "nats://"+l.Addr().String())
	require.ErrorContains(t, err, `the server has the version "2.11.9", and locks need NATS 2.12`)
	require.NotErrorIs(t, err, driver.ErrUnavailable)
}

func TestCheckOfAHealthyServer(t *testing.T) {
	server := natstest.Shared(t)
	doctortest.Run(t, open(t, server, "session_timeout=3s")).Healthy(t)
	doctortest.Run(t, open(t, server, "empty_is_new=true")).Has(t, driver.Warning, "empty_is_new", "leave")
	off := natstest.Start(t, natstest.With("accounts { A: {users: [{user: u, password: p}]} }"))
	doctortest.Check(t, Driver{}, "nats://u:p@"+off.Addr()).Has(t, driver.Problem, "not enabled", "turn JetStream on")
}

// A free lock takes a write and a read, and its release a write.
func TestAFreeLockTakesThreeRequests(t *testing.T) {
	server := natstest.Start(t)
	c := open(t, server, "empty_is_new=true")
	s, err := c.Connect(within(t))
	require.NoError(t, err)
	defer s.Close()
	least := 100 // smallest count, because others may include heartbeats
	for range 4 {
		before := server.Messages()
		j, err := s.Create(within(t), "q", driver.NodeSpec{Prefix: "a-W-"})
		require.NoError(t, err)
		require.NoError(t, s.Delete(within(t), "q", j.Place, driver.Released))
		least = min(least, server.Messages()-before)
	}
	require.Equal(t, 3, least)
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
