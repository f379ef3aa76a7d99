package etcddriver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/dsn"
)

type settings struct {
	endpoints []string // host:port
	prefix    string   // prefix of all keys, without the trailing slash

	user     string
	secret   dsn.Secret                            // source of the password
	password func(context.Context) (string, error) // called for each login

	timeout time.Duration // session timeout, in whole seconds

	tls       bool
	files     dsn.TLS
	tlsConfig *tls.Config // from Driver.TLS or Options.TLS

	lookup func(ctx context.Context, host string) (addrs []string, err error)
	turns  *atomic.Int64 // number of sessions begun so far
}

const (
	defaultPort    = "2379"
	defaultPrefix  = "dlock"
	defaultTimeout = 10 * time.Second
	maxTimeout     = 24 * time.Hour
)

// parseDSN parses a data source name. Its errors quote no part of a password.
func parseDSN(text string) (*settings, error) {
	s := newSettings()
	if err := s.parse(text); err != nil {
		return nil, fmt.Errorf("etcddriver: dsn: %w", err)
	}
	return s, nil
}

func newSettings() *settings {
	s := &settings{prefix: defaultPrefix, timeout: defaultTimeout, lookup: net.DefaultResolver.LookupHost, turns: new(atomic.Int64)}
	s.password = s.secret.Read
	return s
}

func (s *settings) setTimeout(v string) error {
	if dsn.Duration(&s.timeout, time.Second, maxTimeout)(v) != nil || s.timeout%time.Second != 0 {
		return errors.New("not a duration in whole seconds, from 1s to 24h")
	}
	return nil
}

func (s *settings) parse(text string) error {
	rest, found := strings.CutPrefix(text, "etcd://")
	if !found {
		return errors.New("the scheme is not etcd://: write etcd://host:2379/prefix")
	}
	u, err := dsn.Split(rest, defaultPort)
	if err != nil {
		return err
	}
	if s.user, err = s.secret.Login(u.Login); err != nil {
		return err
	}
	if strings.HasSuffix(u.Login, ":") {
		return errors.New("a user without a password: write user:password@")
	}
	s.endpoints = u.Hosts
	if prefix := strings.TrimSuffix(strings.TrimPrefix(u.Path, "/"), "/"); prefix != "" {
		if driver.CheckQueue(prefix) != nil {
			return errors.New("the prefix after the hosts is not a name such as locks or shop/locks")
		}
		s.prefix = prefix
	}
	p := dsn.Parameters{
		"session_timeout": s.setTimeout,
		"tls":             dsn.Bool(&s.tls),
	}
	s.files.AddTo(p)
	s.secret.AddTo(p)
	if err := p.Parse(u.Query); err != nil {
		return err
	}
	return s.files.Check(s.tls, "tls=true")
}

// loadTLS returns nil if TLS is off. Each call reads the files again, because
// certificates are renewed.
func (s *settings) loadTLS() (*tls.Config, error) {
	switch {
	case s.tlsConfig != nil:
		return s.tlsConfig.Clone(), nil
	case !s.tls:
		return nil, nil
	}
	return s.files.Config()
}
