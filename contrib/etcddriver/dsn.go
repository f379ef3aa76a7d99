package etcddriver

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// settings is what a data source name says.
type settings struct {
	endpoints []string // "host:port"
	prefix    string   // the prefix of all keys, without a slash at its end

	user     string
	password func() string // a function, so that printing settings shows no password

	timeout time.Duration // the session timeout, in whole seconds

	tls                                   bool
	tlsCA, tlsCert, tlsKey, tlsServerName string
	tlsConfig                             *tls.Config // the configuration in Driver.TLS
}

const (
	defaultPort    = "2379"
	defaultPrefix  = "dlock"
	defaultTimeout = 10 * time.Second
	maxTimeout     = 24 * time.Hour
)

// parseDSN parses a data source name. It does not use url.Parse, whose errors
// repeat the text with the password. For the same reason an error here repeats
// only names of known parameters, and gives hosts by their position.
func parseDSN(dsn string) (*settings, error) {
	s := &settings{prefix: defaultPrefix, timeout: defaultTimeout, password: func() string { return "" }}
	if err := s.parse(dsn); err != nil {
		return nil, fmt.Errorf("etcddriver: dsn: %w", err)
	}
	return s, nil
}

func (s *settings) parse(dsn string) error {
	rest, found := strings.CutPrefix(dsn, "etcd://")
	if !found {
		return errors.New("the scheme is not etcd://: write etcd://host:2379/prefix")
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, prefix, _ := strings.Cut(rest, "/")
	if strings.Contains(prefix, "@") || strings.Contains(query, "@") {
		return errors.New("an at sign after the hosts: in a user or a password write / as %2F, ? as %3F and @ as %40; in a parameter write @ as %40")
	}
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		if err := s.parseLogin(authority[:i]); err != nil {
			return err
		}
		authority = authority[i+1:]
	}
	if err := s.parseHosts(authority); err != nil {
		return err
	}
	if prefix = strings.TrimSuffix(prefix, "/"); prefix != "" {
		if driver.CheckQueue(prefix) != nil {
			return errors.New("the prefix after the hosts is not a name such as locks or shop/locks")
		}
		s.prefix = prefix
	}
	if err := s.parseParameters(query); err != nil {
		return err
	}
	return s.checkTLS()
}

func (s *settings) parseLogin(login string) error {
	user, password, found := strings.Cut(login, ":")
	if !found || user == "" || password == "" {
		return errors.New("a user without a password, or a password without a user: write user:password@")
	}
	var err error
	if s.user, err = url.PathUnescape(user); err != nil {
		return errors.New("the user has a bad percent escape")
	}
	if password, err = url.PathUnescape(password); err != nil {
		return errors.New("the password has a bad percent escape")
	}
	s.password = func() string { return password }
	return nil
}

func (s *settings) parseHosts(list string) error {
	if list == "" {
		return errors.New("no host: write etcd://host:2379")
	}
	for i, host := range strings.Split(list, ",") {
		endpoint, err := parseHost(host)
		if err != nil {
			return fmt.Errorf("host %d: %w", i+1, err)
		}
		s.endpoints = append(s.endpoints, endpoint)
	}
	return nil
}

func parseHost(text string) (string, error) {
	if !strings.Contains(text, ":") || strings.HasSuffix(text, "]") {
		text += ":" + defaultPort
	}
	host, port, err := net.SplitHostPort(text)
	if err != nil || host == "" || strings.ContainsFunc(host, notInHosts) {
		return "", errors.New("not of the form host:port, or [address]:port for IPv6")
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' {
		return "", errors.New("the port is not a number from 1 to 65535")
	}
	return net.JoinHostPort(host, port), nil
}

func notInHosts(c rune) bool {
	return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._:%", c)
}

func (s *settings) parseParameters(query string) error {
	if query == "" {
		return nil
	}
	seen := make(map[string]bool)
	for i, pair := range strings.Split(query, "&") {
		name, escaped, found := strings.Cut(pair, "=")
		set, known := parameters[name]
		switch {
		case !known:
			return fmt.Errorf("parameter %d is not known: the parameters are session_timeout, tls, tls_ca, tls_cert, tls_key and tls_server_name", i+1)
		case !found:
			return fmt.Errorf("parameter %s has no value", name)
		case seen[name]:
			return fmt.Errorf("parameter %s is there twice", name)
		}
		seen[name] = true
		value, err := url.PathUnescape(escaped)
		if err != nil {
			return fmt.Errorf("parameter %s has a bad percent escape", name)
		}
		if err := set(s, value); err != nil {
			return fmt.Errorf("parameter %s: %w", name, err)
		}
	}
	return nil
}

// parameters are the parameters that may follow the question mark.
var parameters = map[string]func(*settings, string) error{
	"session_timeout": func(s *settings, v string) (err error) {
		s.timeout, err = time.ParseDuration(v)
		if err != nil || s.timeout < time.Second || s.timeout > maxTimeout || s.timeout%time.Second != 0 {
			return errors.New("not a duration in whole seconds, from 1s to 24h")
		}
		return nil
	},
	"tls": func(s *settings, v string) (err error) {
		if s.tls, err = strconv.ParseBool(v); err != nil {
			return errors.New("neither true nor false")
		}
		return nil
	},
	"tls_ca":          func(s *settings, v string) error { return setText(&s.tlsCA, v) },
	"tls_cert":        func(s *settings, v string) error { return setText(&s.tlsCert, v) },
	"tls_key":         func(s *settings, v string) error { return setText(&s.tlsKey, v) },
	"tls_server_name": func(s *settings, v string) error { return setText(&s.tlsServerName, v) },
}

func setText(to *string, v string) error {
	if v == "" {
		return errors.New("empty")
	}
	*to = v
	return nil
}

func (s *settings) checkTLS() error {
	if !s.tls && s.tlsCA+s.tlsCert+s.tlsKey+s.tlsServerName != "" {
		return errors.New("a tls_ parameter without tls=true")
	}
	if (s.tlsCert == "") != (s.tlsKey == "") {
		return errors.New("parameters tls_cert and tls_key go together")
	}
	return nil
}

// loadTLS returns the configuration of connections, or nil for connections
// without TLS. It reads the files at each call.
func (s *settings) loadTLS() (*tls.Config, error) {
	if s.tlsConfig != nil {
		return s.tlsConfig.Clone(), nil
	}
	if !s.tls {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.tlsServerName}
	if s.tlsCA != "" {
		pem, err := os.ReadFile(s.tlsCA)
		if err != nil {
			return nil, fmt.Errorf("tls_ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("tls_ca: the file holds no certificate in PEM")
		}
	}
	if s.tlsCert != "" {
		pair, err := tls.LoadX509KeyPair(s.tlsCert, s.tlsKey)
		if err != nil {
			return nil, fmt.Errorf("tls_cert and tls_key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
