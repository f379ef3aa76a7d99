package natsdriver

import (
	"crypto/tls"
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
	grace    time.Duration
	replicas int  // zero means any, and one for a new stream
	emptyNew bool // a new stream needs no grace
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

func (s *settings) parameters() dsn.Parameters {
	return dsn.Parameters{
		"session_timeout": dsn.Duration(&s.timeout, minTimeout, maxTimeout),
		"grace":           dsn.Duration(&s.grace, minTimeout, maxTimeout),
		"replicas":        dsn.Int(&s.replicas, 1, maxReplicas),
		"empty_is_new":    dsn.Bool(&s.emptyNew),
	}
}

func (s *settings) check() error {
	if s.grace != 0 && s.grace < s.timeout {
		return errors.New("grace is less than session_timeout: leases have to end before it does")
	}
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	if s.stream == "" || len(s.stream) > maxStream || strings.Trim(s.stream, letters) != "" {
		return fmt.Errorf("the name of the stream is not 1 to %d letters, digits, - and _", maxStream)
	}
	return nil
}

// login is how the user proves who it is.
type login struct {
	user            string
	password, token func() string // functions, so that printing hides what they return
	creds, seed     string        // files
	inbox           string
}

// parseDSN parses a data source name. Its errors quote no part of a password.
func parseDSN(text string) (*settings, error) {
	s := &settings{stream: defaultStream, timeout: defaultTimeout}
	if err := s.parse(text); err != nil {
		return nil, fmt.Errorf("natsdriver: dsn: %w", err)
	}
	return s, nil
}

func (s *settings) parse(text string) error {
	scheme, rest, _ := strings.Cut(text, "://")
	if scheme != "nats" && scheme != "tls" {
		return errors.New("the scheme is neither nats:// nor tls://: write nats://host:4222/stream")
	}
	u, err := dsn.Split(rest)
	if err != nil {
		return err
	}
	l := login{}
	if err := l.parse(u.Login); err != nil {
		return err
	}
	hosts, err := dsn.Hosts(u.Hosts, defaultPort)
	if err != nil {
		return err
	}
	if stream := strings.Trim(u.Path, "/"); stream != "" {
		s.stream = stream
	}
	files, secure := dsn.TLS{}, false
	p := s.parameters()
	files.AddTo(p)
	p["tls"] = dsn.Bool(&secure)
	p["inbox_prefix"] = func(v string) error {
		l.inbox = v
		return nats.CustomInboxPrefix(v)(new(nats.Options))
	}
	p["creds"], p["nkey_seed"] = dsn.Text(&l.creds), dsn.Text(&l.seed)
	if err := p.Parse(u.Query); err != nil {
		return err
	}
	secure = secure || scheme == "tls"
	if err := files.Check(secure, "tls=true"); err != nil {
		return err
	}
	if u.Login != "" && l.creds+l.seed != "" || l.creds != "" && l.seed != "" {
		return errors.New("give one of user:password@, token@, creds and nkey_seed")
	}
	s.options = func() (nats.Options, error) { return l.options(hosts, secure, files) }
	return s.check()
}

// parse takes user:password, or a token.
func (l *login) parse(text string) (err error) {
	if text != "" && !strings.Contains(text, ":") {
		_, l.token, err = dsn.Login("token:" + text)
	} else if text != "" {
		l.user, l.password, err = dsn.Login(text)
	}
	return err
}

func (l *login) options(hosts []string, secure bool, files dsn.TLS) (o nats.Options, err error) {
	o = nats.GetDefaultOptions()
	for _, host := range hosts {
		o.Servers = append(o.Servers, "nats://"+host)
	}
	if o.Secure = secure; secure {
		var config *tls.Config
		if config, err = files.Config(); err != nil {
			return o, err
		}
		o.TLSConfig = config
	}
	if o.User = l.user; l.password != nil {
		o.Password = l.password()
	}
	if l.token != nil {
		o.Token = l.token()
	}
	if l.inbox != "" {
		err = nats.CustomInboxPrefix(l.inbox)(&o)
	}
	if l.creds != "" && err == nil {
		if _, err = os.ReadFile(l.creds); err == nil {
			err = nats.UserCredentials(l.creds)(&o)
		}
	}
	if l.seed != "" && err == nil {
		var option nats.Option
		if option, err = nats.NkeyOptionFromSeed(l.seed); err == nil {
			err = option(&o)
		}
	}
	if err != nil {
		err = &dsn.FileError{Err: err}
	}
	return o, err
}
