package zkdriver

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// parseDSN parses a data source name. It does not use url.Parse, whose errors
// repeat the text with the password. For the same reason no error here repeats
// any part of the text that could belong to a password: an error names hosts
// and parameters by their position.
func parseDSN(dsn string) (*settings, error) {
	s, err := parse(dsn)
	if err != nil {
		return nil, fmt.Errorf("zkdriver: dsn: %w", err)
	}
	return s, nil
}

func parse(dsn string) (*settings, error) {
	rest, err := cutScheme(dsn)
	if err != nil {
		return nil, err
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, chroot := rest, ""
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		authority, chroot = rest[:i], rest[i:]
	}
	if strings.Contains(chroot, "@") || strings.Contains(query, "@") {
		return nil, errors.New("an at sign after the hosts: in a user or a password, write / as %2F, ? as %3F and @ as %40; in a parameter, write @ as %40; a chroot cannot have one")
	}
	s := &settings{sessionTimeout: defaultSessionTimeout, sequenceLimit: maxSequence}
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		if err := s.parseLogin(authority[:i]); err != nil {
			return nil, err
		}
		authority = authority[i+1:]
	}
	if s.hosts, err = parseHosts(authority); err != nil {
		return nil, err
	}
	if s.chroot, err = parseChroot(chroot); err != nil {
		return nil, err
	}
	if query != "" {
		if err := s.parseParameters(query); err != nil {
			return nil, err
		}
	}
	return s, s.complete()
}

// cutScheme removes the scheme. The connect strings of other ZooKeeper clients
// have no scheme.
func cutScheme(dsn string) (string, error) {
	scheme, rest, found := strings.Cut(dsn, "://")
	switch {
	case !found:
		return dsn, nil
	case scheme != "zk":
		return "", errors.New("the scheme is not zk://")
	}
	return rest, nil
}

func (s *settings) parseLogin(login string) error {
	user, password, found := strings.Cut(login, ":")
	if !found {
		return errors.New("a user without a password (write user:password@)")
	}
	var err error
	if s.user, err = url.PathUnescape(user); err != nil {
		return errors.New("the user has a bad percent escape")
	}
	if password, err = url.PathUnescape(password); err != nil {
		return errors.New("the password has a bad percent escape")
	}
	s.password = func() string { return password }
	if s.user == "" {
		return errors.New("the user is empty")
	}
	if strings.Contains(s.user, ":") {
		return errors.New("the user contains a colon, which ZooKeeper's digests do not allow")
	}
	s.login = true
	return nil
}

func parseHosts(list string) ([]string, error) {
	if strings.TrimSpace(list) == "" {
		return nil, errors.New("no host")
	}
	var hosts []string
	for i, h := range strings.Split(list, ",") {
		host, err := parseHost(strings.TrimSpace(h))
		if err != nil {
			return nil, fmt.Errorf("host %d: %w", i+1, err)
		}
		hosts = append(hosts, host)
	}
	return hosts, nil
}

func parseHost(s string) (string, error) {
	host, port := s, defaultPort
	switch strings.Count(s, ":") {
	case 0:
	case 1:
		host, port, _ = strings.Cut(s, ":")
	default:
		if !strings.HasPrefix(s, "[") {
			return "", errors.New("more than one colon: an IPv6 address needs brackets, as in [::1]:2181")
		}
	}
	if strings.HasPrefix(s, "[") {
		return parseIPv6(s)
	}
	if host == "" {
		return "", errors.New("the name is empty")
	}
	for _, c := range []byte(host) {
		if !isHostByte(c) {
			return "", errors.New("the name has a character that host names do not have")
		}
	}
	if err := checkPort(port); err != nil {
		return "", err
	}
	return host + ":" + port, nil
}

func parseIPv6(s string) (string, error) {
	inside, after, found := strings.Cut(s[1:], "]")
	if !found {
		return "", errors.New("a bracket is not closed")
	}
	if a, err := netip.ParseAddr(inside); err != nil || !a.Is6() {
		return "", errors.New("the text in the brackets is not an IPv6 address")
	}
	for _, c := range []byte(inside) {
		if !isHostByte(c) && c != ':' && c != '%' {
			return "", errors.New("the zone has a character that zones do not have")
		}
	}
	port := defaultPort
	if after != "" {
		if after[0] != ':' {
			return "", errors.New("something other than a port follows the brackets")
		}
		port = after[1:]
	}
	if err := checkPort(port); err != nil {
		return "", err
	}
	return "[" + inside + "]:" + port, nil
}

func isHostByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_'
}

func checkPort(port string) error {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || port[0] == '0' {
		return errors.New("the port is not a number from 1 to 65535")
	}
	return nil
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

func (s *settings) parseParameters(query string) error {
	seen := make(map[string]bool)
	for i, pair := range strings.Split(query, "&") {
		name, escaped, found := strings.Cut(pair, "=")
		set, known := parameters[name]
		switch why := removed[name]; {
		case why != "":
			return fmt.Errorf("parameter %d: %q has been removed: %s", i+1, name, why)
		case !known && isPlainWord(name) && found:
			return fmt.Errorf("parameter %d: %q is not known", i+1, name)
		case !known:
			return fmt.Errorf("parameter %d is not known", i+1)
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

func isPlainWord(s string) bool {
	for _, c := range []byte(s) {
		if (c < 'a' || c > 'z') && c != '_' {
			return false
		}
	}
	return s != "" && len(s) <= 32
}

// parameters are the parameters that may follow the question mark.
var parameters = map[string]func(*settings, string) error{
	"session_timeout": func(s *settings, v string) (err error) {
		s.sessionTimeout, err = parseDuration(v, minSessionTimeout, maxSessionTimeout)
		return err
	},
	"connect_timeout": func(s *settings, v string) (err error) {
		s.connectTimeout, err = parseDuration(v, time.Millisecond, maxConnectTimeout)
		return err
	},
	"lease_margin": func(s *settings, v string) (err error) {
		s.leaseMargin, err = parseDuration(v, time.Millisecond, maxSessionTimeout)
		return err
	},
	"tick_time": func(s *settings, v string) (err error) {
		s.tick, err = parseDuration(v, time.Millisecond, maxSessionTimeout)
		return err
	},
	"handover": func(s *settings, v string) error {
		if v != "release" && v != "list" {
			return errors.New("neither release nor list")
		}
		s.listOnly = v == "list"
		return nil
	},
	"sequence_limit": func(s *settings, v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil || n < 1 || n > maxSequence {
			return fmt.Errorf("not a number from 1 to %d", maxSequence)
		}
		s.sequenceLimit = n
		return nil
	},
	"acl": func(s *settings, v string) error {
		mode, known := map[string]aclMode{"open": aclOpen, "creator": aclCreator, "digest": aclDigest}[v]
		if !known {
			return errors.New("neither open nor creator nor digest")
		}
		s.acl = mode
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

// removed has the parameters that only earlier releases had, each with the
// reason why it was removed.
var removed = map[string]string{
	"heartbeat": "it is not needed, as two heartbeats of three are syncs now; the third one is a write, without which a deposed leader could let two sessions hold a lock",
}

func setText(to *string, v string) error {
	if v == "" {
		return errors.New("empty")
	}
	*to = v
	return nil
}

func parseDuration(v string, least, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	switch {
	case err != nil:
		return 0, errors.New("not a duration such as 10s or 500ms")
	case d < least || d > most:
		return 0, fmt.Errorf("not between %v and %v", least, most)
	}
	return d, nil
}

// complete checks parameters against each other and sets defaults.
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
	if !s.tls && s.tlsCA+s.tlsCert+s.tlsKey+s.tlsServerName != "" {
		return errors.New("a tls_ parameter without tls=true")
	}
	if (s.tlsCert == "") != (s.tlsKey == "") {
		return errors.New("parameters tls_cert and tls_key go together")
	}
	return nil
}

// checkACL checks the parameter acl. With acl=creator, a certificate can take
// the place of a user and a password. So checkACL runs when the certificate of
// Driver.TLS, if there is one, is known, which is after complete.
func (s *settings) checkACL() error {
	switch {
	case s.acl == aclDigest && !s.login:
		return errors.New("zkdriver: dsn: parameter acl: digest needs a user and a password")
	case s.acl == aclCreator && !s.login && !s.certified():
		return errors.New("zkdriver: dsn: parameter acl: creator needs a user and a password, or a client certificate")
	}
	return nil
}
