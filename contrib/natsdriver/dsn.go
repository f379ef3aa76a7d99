package natsdriver

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dlock-go/dlock/driver/dsn"
)

// settings is a parsed data source name, or what NewConnector was given. It is
// immutable.
type settings struct {
	// options reads files again for each connection. As a function, it keeps
	// passwords out of printed settings.
	options  func(context.Context) (nats.Options, error)
	servers  string // for messages
	stream   string
	timeout  time.Duration
	grace    time.Duration // pause before sessions begin after data loss
	replicas int           // zero: 1 in new streams, any in existing
	emptyNew bool          // no grace if the stream has no messages
}

// requestTime limits a request for which package session sets no limit.
func (s *settings) requestTime() time.Duration { return max(s.timeout/4, 2*time.Second) }

// newSettings parses parameters, which may include those in ofConnection.
func newSettings(stream, parameters string, ofConnection dsn.Parameters) (*settings, error) {
	s := &settings{stream: cmp.Or(stream, "dlock"), timeout: 20 * time.Second}
	p := dsn.Parameters{
		"session_timeout": dsn.Duration(&s.timeout, time.Second, 24*time.Hour),
		"grace":           dsn.Duration(&s.grace, time.Second, 24*time.Hour),
		"replicas":        dsn.Int(&s.replicas, 1, 5),
		"empty_is_new":    dsn.Bool(&s.emptyNew),
	}
	maps.Copy(p, ofConnection)
	if err := p.Parse(parameters); err != nil {
		return s, err
	}
	if s.grace != 0 && s.grace < s.timeout {
		return s, errors.New("grace is less than session_timeout: leases have to end before it does")
	}
	s.grace = max(s.grace, s.timeout)
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	if len(s.stream) > 64 || strings.Trim(s.stream, letters) != "" {
		return s, errors.New("the name of the stream is not 1 to 64 letters, digits, - and _")
	}
	return s, nil
}

// parseDSN parses a data source name. Its errors quote no part of a password.
func parseDSN(text string, password func(context.Context) (string, error)) (*settings, error) {
	scheme, rest, _ := strings.Cut(text, "://")
	if scheme != "nats" && scheme != "tls" {
		return nil, errors.New("the scheme is neither nats:// nor tls://: write nats://host:4222/stream")
	}
	u, err := dsn.Split(rest, "4222")
	if err != nil {
		return nil, err
	}
	files, secret, secure, creds, seed, inbox := dsn.TLS{}, dsn.Secret{}, scheme == "tls", "", "", ""
	p := dsn.Parameters{"creds": dsn.Text(&creds), "nkey_seed": dsn.Text(&seed)}
	p["inbox_prefix"] = func(v string) error {
		inbox = v
		return nats.CustomInboxPrefix(v)(new(nats.Options))
	}
	files.AddTo(p)
	secret.AddTo(p)
	s, err := newSettings(strings.Trim(u.Path, "/"), u.Query, p)
	if err = cmp.Or(err, files.Check(secure, "tls://")); err != nil {
		return nil, err
	}
	token := u.Login != "" && !strings.Contains(u.Login, ":") && password == nil && !secret.Changes()
	if token {
		u.Login = "token:" + u.Login
	}
	user, err := secret.Login(u.Login)
	if err = cmp.Or(err, secret.Check(false, password)); err != nil {
		return nil, err
	}
	if creds != "" && seed != "" || creds+seed != "" && (u.Login != "" || secret.Changes()) {
		return nil, errors.New("give one of user:password@, token@, creds and nkey_seed")
	}
	s.servers = strings.Join(u.Hosts, ",")
	s.options = func(ctx context.Context) (nats.Options, error) {
		o := nats.GetDefaultOptions()
		o.Servers, o.InboxPrefix, o.Secure = u.Hosts, inbox, secure
		config, err := files.Config()
		text, failed := secret.Read(ctx)
		o.TLSConfig = config
		if o.User, o.Password = user, text; token {
			o.User, o.Password, o.Token = "", "", text
		}
		return o, cmp.Or(err, failed, useKey(&o, creds, seed))
	}
	return s, nil
}

// useKey makes o log in with the key file creds or seed, if either is set.
func useKey(o *nats.Options, creds, seed string) error {
	switch {
	case creds != "":
		text, err := os.ReadFile(creds)
		return cmp.Or(err, nats.UserCredentialBytes(text)(o))
	case seed != "":
		login, err := nats.NkeyOptionFromSeed(seed)
		if err != nil {
			return err
		}
		return login(o)
	}
	return nil
}
