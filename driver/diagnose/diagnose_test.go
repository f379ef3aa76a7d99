package diagnose_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/diagnose"
	"github.com/dlock-go/dlock/driver/dsn"
	"github.com/dlock-go/dlock/internal/doctortest"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/memdriver"
)

const timeout = 5 * time.Second

// run diagnoses the store and returns the findings by check.
func run(t *testing.T, st diagnose.Store) map[driver.Check][]driver.Finding {
	t.Helper()
	if st.Connector == nil {
		st.Connector = memdriver.New(memdriver.WithSessionTimeout(timeout))
	}
	found := make(map[driver.Check][]driver.Finding)
	require.NoError(t, diagnose.Run(t.Context(), st, func(f driver.Finding) {
		assert.Equal(t, f.Level == driver.OK, f.Advice == "" && f.Level == driver.OK, "%v", f)
		found[f.Check] = append(found[f.Check], f)
	}))
	return found
}

// one requires that a check has a single finding, and returns it.
func one(t *testing.T, found map[driver.Check][]driver.Finding, check driver.Check) driver.Finding {
	t.Helper()
	require.Len(t, found[check], 1, "%v", found)
	return found[check][0]
}

func silence(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

func TestAStoreWithoutServer(t *testing.T) {
	found := run(t, diagnose.Store{Local: "the memory", Timeout: timeout})
	for _, check := range driver.Checks() {
		switch f := one(t, found, check); check {
		case driver.CheckSettings, driver.CheckSequences:
			assert.Equal(t, driver.Unknown, f.Level)
			assert.NotEmpty(t, f.Advice)
		default:
			assert.Equal(t, driver.OK, f.Level, "%v", f)
		}
	}
	assert.Equal(t, "no host: the memory", one(t, found, driver.CheckResolve).Text)
	assert.Contains(t, one(t, found, driver.CheckOutage).Text, "for 3.125s to 3.75s")
}

func TestAHostWithoutAddressEndsTheDiagnosis(t *testing.T) {
	found := run(t, diagnose.Store{Hosts: []string{"no-such-host.invalid:1"}, Timeout: time.Second})
	f := one(t, found, driver.CheckResolve)
	assert.Equal(t, driver.Problem, f.Level)
	assert.Contains(t, f.Text, "no-such-host.invalid:1: lookup no-such-host.invalid")
	assert.Contains(t, f.Advice, "correct the host")
	assert.Len(t, found, 1)
}

func TestAClosedPortEndsTheDiagnosis(t *testing.T) {
	closed := doctortest.Listen(t, silence)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.Close()
	found := run(t, diagnose.Store{Hosts: []string{l.Addr().String()}})
	f := one(t, found, driver.CheckConnect)
	assert.Equal(t, driver.Problem, f.Level)
	assert.Contains(t, f.Advice, "start the server")
	assert.NotContains(t, found, driver.CheckTLS)

	found = run(t, diagnose.Store{Hosts: []string{l.Addr().String(), closed}})
	require.Len(t, found[driver.CheckConnect], 2)
	assert.Equal(t, driver.Warning, found[driver.CheckConnect][0].Level, "the other host answers")
	assert.Equal(t, driver.OK, found[driver.CheckConnect][1].Level)
	assert.Contains(t, found, driver.CheckLogin)
}

func TestCertificates(t *testing.T) {
	certs := testenv.NewCerts(t)
	serve := func(pair testenv.Pair) string {
		config := &tls.Config{Certificates: []tls.Certificate{pair.Load(t)}}
		return doctortest.Listen(t, func(c net.Conn) { _ = tls.Server(c, config).Handshake() })
	}
	good := serve(certs.Server)
	for name, c := range map[string]struct {
		host, ca string
		level    driver.Level
		text     string
		advice   string
	}{
		"expires soon":     {good, certs.CA, driver.Warning, "expires on", "renew it"},
		"another's":        {good, certs.OtherCA, driver.Problem, "certificate signed by unknown authority", "tls_ca"},
		"another host's":   {serve(certs.OtherHost), certs.CA, driver.Problem, "IP SANs", "tls_server_name"},
		"expired":          {serve(certs.Expired), certs.CA, driver.Problem, "expired", "renew the certificate of the server"},
		"no file":          {good, "/does/not/exist", driver.Problem, "tls_ca", "correct the files"},
		"a port in plain":  {doctortest.Listen(t, func(c net.Conn) { _, _ = io.WriteString(c, "-ERR hello\r\n") }), certs.CA, driver.Problem, "does not look like a TLS handshake", "without TLS"},
		"a silent port":    {doctortest.Listen(t, silence), certs.CA, driver.Problem, "no answer to the TLS handshake", "speaks TLS"},
		"a closing server": {doctortest.Listen(t, func(net.Conn) {}), certs.CA, driver.Problem, "TLS handshake", "speaks TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			found := run(t, diagnose.Store{Hosts: []string{c.host}, Timeout: time.Second, TLS: func(host string) (*tls.Config, error) {
				config, err := dsn.TLS{CA: c.ca}.Config()
				if err == nil {
					config.ServerName = host
				}
				return config, err
			}})
			f := found[driver.CheckTLS][0]
			assert.Equal(t, c.level, f.Level)
			assert.Contains(t, f.Text, c.text)
			assert.Contains(t, f.Advice, c.advice)
			assert.Equal(t, c.level == driver.Problem, found[driver.CheckLogin] == nil)
		})
	}
}

func TestAServerThatRefusesTheClientsCertificate(t *testing.T) {
	certs := testenv.NewCerts(t)
	config := &tls.Config{Certificates: []tls.Certificate{certs.Server.Load(t)}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: testenv.Pool(t, certs.CA)}
	host := doctortest.Listen(t, func(c net.Conn) {
		secure := tls.Server(c, config)
		if secure.Handshake() == nil {
			_, _ = io.Copy(io.Discard, secure)
		}
	})
	for _, own := range []testenv.Pair{{}, certs.Stranger, certs.Client} {
		found := run(t, diagnose.Store{Hosts: []string{host}, Timeout: timeout, TLS: func(host string) (*tls.Config, error) {
			config, err := dsn.TLS{CA: certs.CA, Cert: own.Cert, Key: own.Key, ServerName: host}.Config()
			return config, err
		}})
		f := found[driver.CheckTLS][0]
		if own == certs.Client {
			assert.NotEqual(t, driver.Problem, f.Level, "%v", f)
			continue
		}
		assert.Equal(t, driver.Problem, f.Level, "%v", f)
		assert.Contains(t, f.Advice, "client certificate")
	}
}

func TestAServerThatHasNoTLS(t *testing.T) {
	st := diagnose.Store{Hosts: []string{doctortest.Listen(t, silence)},
		TLS:      func(string) (*tls.Config, error) { return &tls.Config{}, nil },
		StartTLS: func(net.Conn) error { return fmt.Errorf("oops: %w", diagnose.ErrNoTLS) }}
	assert.Equal(t, driver.Problem, one(t, run(t, st), driver.CheckTLS).Level)
	st.OptionalTLS = true
	assert.Equal(t, driver.OK, one(t, run(t, st), driver.CheckTLS).Level)
}

// failing is a connector whose methods and sessions fail. The fields connect,
// create and close hold the errors that Connect, Create and Close return.
type failing struct {
	driver.Connector
	connect, create, close error
	ahead                  time.Duration
	block                  bool
}

type failingSession struct {
	driver.Session
	failing
}

func (c failing) Connect(ctx context.Context) (driver.Session, error) {
	if c.block {
		<-ctx.Done()
		return nil, fmt.Errorf("%w: %w", driver.ErrUnavailable, ctx.Err())
	}
	if c.connect != nil {
		return nil, c.connect
	}
	s, err := memdriver.New(memdriver.WithSessionTimeout(timeout)).Connect(ctx)
	return failingSession{s, c}, err
}

func (s failingSession) Describe() driver.SessionInfo { return driver.Inspect(s.Session).Describe() }

func (s failingSession) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	if s.create != nil {
		return driver.Joined{}, s.create
	}
	return s.Session.Create(ctx, queue, n)
}

func (s failingSession) Read(ctx context.Context, queue, name string) (driver.NodeInfo, error) {
	info, err := driver.Inspect(s.Session).Read(ctx, queue, name)
	info.Created = info.Created.Add(s.ahead)
	return info, err
}

func (s failingSession) Close() error { return errors.Join(s.Session.Close(), s.close) }

func TestErrorsOfTheSession(t *testing.T) {
	denied := errors.New("denied")
	explain := func(err error) (driver.Check, string) {
		if errors.Is(err, denied) {
			return driver.CheckRights, "grant"
		}
		return "", ""
	}
	for name, c := range map[string]struct {
		failing
		check  driver.Check
		level  driver.Level
		text   string
		advice string
	}{
		"login":        {failing{connect: errors.New("bad password")}, driver.CheckLogin, driver.Problem, "bad password", "the user and the password"},
		"unavailable":  {failing{connect: driver.ErrUnavailable}, driver.CheckLogin, driver.Problem, "store unavailable", "is healthy"},
		"rights":       {failing{create: errors.New("no")}, driver.CheckRights, driver.Problem, "create a node: no", "package documentation"},
		"rights known": {failing{create: denied}, driver.CheckRights, driver.Problem, "denied", "grant"},
		"no rights":    {failing{connect: denied}, driver.CheckRights, driver.Problem, "denied", "grant"},
		"ahead":        {failing{ahead: time.Hour}, driver.CheckClock, driver.Warning, "1h0m0s ahead", "NTP"},
		"behind":       {failing{ahead: -time.Hour}, driver.CheckClock, driver.Warning, "behind", "NTP"},
		"a little":     {failing{ahead: 10 * time.Second}, driver.CheckClock, driver.OK, "ahead", ""},
		"silent":       {failing{block: true}, driver.CheckLogin, driver.Problem, "store unavailable", "is healthy"},
	} {
		t.Run(name, func(t *testing.T) {
			f := one(t, run(t, diagnose.Store{Connector: c.failing, Explain: explain, Timeout: timeout / 5}), c.check)
			assert.Equal(t, c.level, f.Level)
			assert.Contains(t, f.Text, c.text)
			assert.Contains(t, f.Advice, c.advice)
		})
	}
	found := run(t, diagnose.Store{Connector: failing{close: errors.New("cut off")}})[driver.CheckLogin]
	require.Len(t, found, 2)
	assert.Equal(t, driver.Warning, found[1].Level)
}

func TestTheSessionTimeout(t *testing.T) {
	granted := one(t, run(t, diagnose.Store{Timeout: 2 * timeout}), driver.CheckTimeout)
	assert.Equal(t, driver.Warning, granted.Level)
	assert.Contains(t, granted.Text, "5s granted, although the client asks for 10s")
	short := one(t, run(t, diagnose.Store{Connector: memdriver.New(memdriver.WithSessionTimeout(time.Second)), Timeout: time.Second}), driver.CheckTimeout)
	assert.Equal(t, driver.Warning, short.Level)
	assert.Contains(t, short.Advice, "10s")
	late := one(t, run(t, diagnose.Store{Outage: func(driver.Session) (kept, survived time.Duration) { return time.Second, -1 }}), driver.CheckOutage)
	assert.Equal(t, driver.Warning, late.Level)
}

func TestADiagnosisEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	var found []driver.Finding
	err := diagnose.Run(ctx, diagnose.Store{Connector: failing{block: true}}, func(f driver.Finding) { found = append(found, f) })
	assert.ErrorIs(t, err, context.Canceled)
	assert.False(t, slices.ContainsFunc(found, func(f driver.Finding) bool { return f.Level != driver.OK }), "%v", found)
}
