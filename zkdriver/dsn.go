package zkdriver

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver/dsn"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

type settings struct {
	hosts  []string // "host:port"; an IPv6 address in brackets
	chroot string   // "" or "/a/b"

	login    bool // whether the data source name has a user
	user     string
	secret   dsn.Secret
	password func() string // per session; a function hides it from %v

	sessionTimeout time.Duration
	connectTimeout time.Duration
	leaseMargin    time.Duration // 0: a quarter of the granted timeout
	tick           time.Duration // the ensemble's tickTime; 0: not stated
	listOnly       bool          // handover=list: waiters list after each release
	sequenceLimit  int64
	layout         *layout // nil: nodes have dlock's own names
	aclMode        aclMode

	tls       bool
	files     dsn.TLS
	tlsConfig *tls.Config // from Driver.TLS
}

const (
	defaultPort           = "2181"
	defaultSessionTimeout = 10 * time.Second

	minSessionTimeout = 100 * time.Millisecond
	maxSessionTimeout = 24 * time.Hour

	// Package recipes gives up connecting after this time.
	maxConnectTimeout = 30 * time.Second

	// maxSequence is below ZooKeeper's maximum, for clients that have not noticed
	// the limit.
	maxSequence = 1<<31 - 1<<20
)

type aclMode int

const (
	aclOpen    aclMode = iota // every client
	aclCreator                // the session's user, as authenticated by the server
	aclDigest                 // only the user of the data source name
)

func (m aclMode) String() string { return [...]string{"open", "creator", "digest"}[m] }

func (s *settings) connConfig() zkconn.Config {
	return zkconn.Config{
		Hosts: s.hosts, SessionTimeout: s.sessionTimeout, ConnectTimeout: s.connectTimeout,
		LeaseMargin: s.leaseMargin, Tick: s.tick,
		TLS: zkconn.TLS{On: s.tls, Files: s.files, Config: s.tlsConfig},
	}
}

// parseDSN never quotes the data source name in errors, because it may contain
// a password.
func parseDSN(text string) (*settings, error) {
	s, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("zkdriver: dsn: %w", err)
	}
	return s, nil
}

func parse(text string) (*settings, error) {
	rest, err := cutScheme(text)
	if err != nil {
		return nil, err
	}
	u, err := dsn.Split(rest, defaultPort)
	if err != nil {
		return nil, err
	}
	s := &settings{hosts: u.Hosts, sessionTimeout: defaultSessionTimeout, sequenceLimit: maxSequence}
	if s.user, err = s.secret.Login(u.Login); err != nil {
		return nil, err
	}
	if strings.Contains(s.user, ":") {
		return nil, errors.New("the user contains a colon, which ZooKeeper's digests do not allow")
	}
	s.login = s.user != ""
	if s.chroot, err = parseChroot(u.Path); err != nil {
		return nil, err
	}
	if err := s.parameters().Parse(u.Query); err != nil {
		return nil, err
	}
	return s, s.complete()
}

// cutScheme removes the scheme, which ZooKeeper's own connect strings lack.
func cutScheme(text string) (string, error) {
	scheme, rest, found := strings.Cut(text, "://")
	switch {
	case !found:
		return text, nil
	case scheme != "zk":
		return "", errors.New("the scheme is not zk://")
	}
	return rest, nil
}

func parseChroot(path string) (string, error) {
	path = strings.TrimSuffix(path, "/")
	if path == "" {
		return "", nil
	}
	if err := checkSegments(path[1:]); err != nil {
		return "", fmt.Errorf("chroot: %w", err)
	}
	if first, _, _ := strings.Cut(path[1:], "/"); first == reserved {
		return "", errors.New("chroot: /zookeeper belongs to the server")
	}
	return path, nil
}

func (s *settings) parameters() dsn.Parameters {
	p := dsn.Parameters{
		"session_timeout": dsn.Duration(&s.sessionTimeout, minSessionTimeout, maxSessionTimeout),
		"connect_timeout": dsn.Duration(&s.connectTimeout, time.Millisecond, maxConnectTimeout),
		"lease_margin":    dsn.Duration(&s.leaseMargin, time.Millisecond, maxSessionTimeout),
		"tick_time":       dsn.Duration(&s.tick, time.Millisecond, maxSessionTimeout),
		"sequence_limit":  dsn.Int(&s.sequenceLimit, 1, maxSequence),
		"tls":             dsn.Bool(&s.tls),
		"handover": func(v string) error {
			if v != "release" && v != "list" {
				return errors.New("neither release nor list")
			}
			s.listOnly = v == "list"
			return nil
		},
		"names": func(v string) (err error) {
			s.layout, err = layoutOf(v)
			return err
		},
		"acl": func(v string) error {
			mode, known := map[string]aclMode{"open": aclOpen, "creator": aclCreator, "digest": aclDigest}[v]
			if !known {
				return errors.New("neither open nor creator nor digest")
			}
			s.aclMode = mode
			return nil
		},
	}
	s.files.AddTo(p)
	s.secret.AddTo(p)
	return p
}

func (s *settings) complete() error {
	if s.connectTimeout == 0 {
		s.connectTimeout = min(max(s.sessionTimeout, 5*time.Second), maxConnectTimeout)
	}
	if s.leaseMargin > s.sessionTimeout/2 {
		return errors.New("parameter lease_margin is more than half of session_timeout")
	}
	if s.tick > s.sessionTimeout/2 {
		return errors.New("parameter tick_time is more than half of session_timeout")
	}
	return s.files.Check(s.tls, "tls=true")
}

// checkACL runs once Driver.TLS is known: with acl=creator, a certificate can
// replace the user.
func (s *settings) checkACL() error {
	switch {
	case s.aclMode == aclDigest && !s.login:
		return errors.New("zkdriver: dsn: parameter acl: digest needs a user and a password")
	case s.aclMode == aclCreator && !s.login && !s.certified():
		return errors.New("zkdriver: dsn: parameter acl: creator needs a user and a password, or a client certificate")
	}
	return nil
}
