package natsdriver

import (
	"errors"
	"fmt"
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
	stream   string
	timeout  time.Duration
	grace    time.Duration // zero means timeout
	replicas int           // zero means one for a new stream, and any for another one
	emptyNew bool          // a stream without messages needs no grace
}

const (
	defaultPort    = "4222"
	defaultStream  = "dlock"
	defaultTimeout = 20 * time.Second
	minTimeout     = time.Second
	maxTimeout     = 24 * time.Hour
	maxStream      = 64
	maxReplicas    = 5
)

// graceTime returns how long no session begins after a loss of data.
func (s *settings) graceTime() time.Duration { return max(s.grace, s.timeout) }

// requestTime limits a request for which the engine has no limit.
func (s *settings) requestTime() time.Duration { return max(s.timeout/4, 2*time.Second) }

// check checks what has no parameter that does.
func (s *settings) check() error {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	switch {
	case s.timeout < minTimeout || s.timeout > maxTimeout || s.grace < 0 || s.grace > maxTimeout || s.replicas < 0 || s.replicas > maxReplicas:
		return fmt.Errorf("the session timeout and the grace are %v to %v, and there are up to %d replicas", minTimeout, maxTimeout, maxReplicas)
	case s.grace != 0 && s.grace < s.timeout:
		return errors.New("grace is less than session_timeout: leases have to end before it does")
	case s.stream == "" || len(s.stream) > maxStream || strings.Trim(s.stream, letters) != "":
		return fmt.Errorf("the name of the stream is not 1 to %d letters, digits, - and _", maxStream)
	}
	return nil
}

// parseDSN parses a data source name. Its errors quote no part of a password.
func parseDSN(text string) (*settings, error) {
	s := &settings{stream: defaultStream, timeout: defaultTimeout}
	scheme, rest, _ := strings.Cut(text, "://")
	if scheme != "nats" && scheme != "tls" {
		return nil, errors.New("the scheme is neither nats:// nor tls://: write nats://host:4222/stream")
	}
	u, err := dsn.Split(rest)
	if err != nil {
		return nil, err
	}
	hosts, err := dsn.Hosts(u.Hosts, defaultPort)
	if err != nil {
		return nil, err
	}
	if stream := strings.Trim(u.Path, "/"); stream != "" {
		s.stream = stream
	}
	files, secure, creds, seed, inbox := dsn.TLS{}, false, "", "", nats.InboxPrefix[:len(nats.InboxPrefix)-1]
	p := dsn.Parameters{
		"session_timeout": dsn.Duration(&s.timeout, minTimeout, maxTimeout),
		"grace":           dsn.Duration(&s.grace, minTimeout, maxTimeout),
		"replicas":        dsn.Int(&s.replicas, 1, maxReplicas),
		"empty_is_new":    dsn.Bool(&s.emptyNew),
		"tls":             dsn.Bool(&secure),
		"creds":           dsn.Text(&creds),
		"nkey_seed":       dsn.Text(&seed),
		"inbox_prefix":    dsn.Text(&inbox),
	}
	files.AddTo(p)
	if err := p.Parse(u.Query); err != nil {
		return nil, err
	}
	secure = secure || scheme == "tls"
	if err := files.Check(secure, "tls=true"); err != nil {
		return nil, err
	}
	if err := nats.CustomInboxPrefix(inbox)(new(nats.Options)); err != nil {
		return nil, errors.New("parameter inbox_prefix is not a subject")
	}
	login, err := loginOption(u.Login, creds, seed)
	if err != nil {
		return nil, err
	}
	s.options = func() (o nats.Options, err error) {
		o = nats.GetDefaultOptions()
		o.Servers, o.InboxPrefix, o.Secure = hosts, inbox, secure
		if secure {
			if o.TLSConfig, err = files.Config(); err != nil {
				return o, err
			}
		}
		return o, login(&o)
	}
	return s, s.check()
}

// loginOption returns the option by which the user proves who it is.
func loginOption(text, creds, seed string) (nats.Option, error) {
	if text != "" && creds+seed != "" || creds != "" && seed != "" {
		return nil, errors.New("give one of user:password@, token@, creds and nkey_seed")
	}
	var option func() (nats.Option, error)
	switch {
	case creds != "":
		option = func() (nats.Option, error) {
			_, err := os.ReadFile(creds)
			return nats.UserCredentials(creds), err
		}
	case seed != "":
		option = func() (nats.Option, error) { return nats.NkeyOptionFromSeed(seed) }
	case text == "":
		return func(*nats.Options) error { return nil }, nil
	case !strings.Contains(text, ":"):
		_, token, err := dsn.Login("token:" + text)
		return func(o *nats.Options) error { o.Token = token(); return nil }, err
	default:
		user, password, err := dsn.Login(text)
		return func(o *nats.Options) error { o.User, o.Password = user, password(); return nil }, err
	}
	return func(o *nats.Options) error {
		made, err := option()
		if err != nil {
			return &dsn.FileError{Err: err}
		}
		return made(o)
	}, nil
}
