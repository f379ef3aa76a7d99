package natsdriver

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dlock-go/dlock/driver/dsn"
)

// settings is a parsed data source name, or what NewConnector was given. It is
// immutable.
type settings struct {
	// options returns the options of a new connection. It is a function, because
	// files are read again for each session, and so that printing settings does
	// not reveal a password.
	options  func() (nats.Options, error)
	servers  string // for messages
	stream   string
	timeout  time.Duration
	grace    time.Duration // how long no session begins after a loss of data
	replicas int           // zero means one for a new stream, and any for another one
	emptyNew bool          // a stream without messages needs no grace
}

// requestTime limits a request for which the engine has no limit.
func (s *settings) requestTime() time.Duration { return max(s.timeout/4, 2*time.Second) }

// newSettings parses parameters, of which it does not know those of a connection.
func newSettings(stream, parameters string, ofConnection dsn.Parameters) (*settings, error) {
	const minTimeout, maxTimeout = time.Second, 24 * time.Hour
	s := &settings{stream: "dlock", timeout: 20 * time.Second}
	p := dsn.Parameters{
		"session_timeout": dsn.Duration(&s.timeout, minTimeout, maxTimeout),
		"grace":           dsn.Duration(&s.grace, minTimeout, maxTimeout),
		"replicas":        dsn.Int(&s.replicas, 1, 5),
		"empty_is_new":    dsn.Bool(&s.emptyNew),
	}
	for name, set := range ofConnection {
		p[name] = set
	}
	if err := p.Parse(parameters); err != nil {
		return s, err
	}
	if s.grace != 0 && s.grace < s.timeout {
		return s, errors.New("grace is less than session_timeout: leases have to end before it does")
	}
	s.grace = max(s.grace, s.timeout)
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	if stream != "" {
		s.stream = stream
	}
	if len(s.stream) > 64 || strings.Trim(s.stream, letters) != "" {
		return s, errors.New("the name of the stream is not 1 to 64 letters, digits, - and _")
	}
	return s, nil
}

// parseDSN parses a data source name. Its errors quote no part of a password.
func parseDSN(text string) (*settings, error) {
	scheme, rest, _ := strings.Cut(text, "://")
	if scheme != "nats" && scheme != "tls" {
		return nil, errors.New("the scheme is neither nats:// nor tls://: write nats://host:4222/stream")
	}
	u, err := dsn.Split(rest)
	if err != nil {
		return nil, err
	}
	hosts, err := dsn.Hosts(u.Hosts, "4222")
	if err != nil {
		return nil, err
	}
	files, secret, secure, creds, seed, inbox := dsn.TLS{}, dsn.Secret{}, false, "", "", ""
	p := dsn.Parameters{"tls": dsn.Bool(&secure), "creds": dsn.Text(&creds), "nkey_seed": dsn.Text(&seed)}
	p["inbox_prefix"] = func(v string) error {
		inbox = v
		return nats.CustomInboxPrefix(v)(new(nats.Options))
	}
	files.AddTo(p)
	secret.AddTo(p)
	s, err := newSettings(strings.Trim(u.Path, "/"), u.Query, p)
	if err != nil {
		return nil, err
	}
	secure = secure || scheme == "tls"
	if err := files.Check(secure, "tls=true"); err != nil {
		return nil, err
	}
	login, err := loginOption(u.Login, &secret, creds, seed)
	s.servers = strings.Join(hosts, ",")
	s.options = func() (o nats.Options, err error) {
		o = nats.GetDefaultOptions()
		o.Servers, o.InboxPrefix, o.Secure = hosts, inbox, secure
		if secure {
			if o.TLSConfig, err = files.Config(); err != nil {
				return o, err
			}
			readAgain(&o, files)
		}
		return o, login(&o)
	}
	return s, err
}

// readAgain makes each new connection of a session read the certificates anew.
func readAgain(o *nats.Options, files dsn.TLS) {
	if files.CA != "" {
		o.RootCAsCB = func() (*x509.CertPool, error) {
			c, err := files.Config()
			if err != nil {
				return nil, err
			}
			return c.RootCAs, nil
		}
	}
	if files.Cert != "" {
		o.TLSCertCB = func() (tls.Certificate, error) {
			c, err := files.Config()
			if err != nil {
				return tls.Certificate{}, err
			}
			return c.Certificates[0], nil
		}
	}
}

// loginOption returns the option by which the user proves who it is.
func loginOption(text string, secret *dsn.Secret, creds, seed string) (nats.Option, error) {
	switch {
	case (text != "" || secret.Changes()) && creds+seed != "" || creds != "" && seed != "":
		return nil, errors.New("give one of user:password@, token@, creds and nkey_seed")
	case creds != "":
		return func(o *nats.Options) error {
			if _, err := os.ReadFile(creds); err != nil {
				return &dsn.FileError{Err: err}
			}
			return nats.UserCredentials(creds)(o)
		}, nil
	case seed != "":
		return func(o *nats.Options) error {
			option, err := nats.NkeyOptionFromSeed(seed)
			if err != nil {
				return &dsn.FileError{Err: err}
			}
			return option(o)
		}, nil
	case text == "" && !secret.Changes():
		return func(*nats.Options) error { return nil }, nil
	case !strings.Contains(text, ":") && !secret.Changes():
		_, token, err := dsn.Login("token:" + text)
		return func(o *nats.Options) error { o.Token = token(); return nil }, err
	}
	user, err := secret.Login(text)
	return func(o *nats.Options) error {
		o.UserInfo = func() (string, string) {
			password, _ := secret.Read(context.Background()) // without a password, the server refuses the login
			return user, password
		}
		_, err := secret.Read(context.Background())
		return err
	}, cmp.Or(err, secret.Check(false, nil))
}
