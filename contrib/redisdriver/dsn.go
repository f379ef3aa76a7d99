package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/driver/dsn"
)

// settings is a parsed data source name. It is immutable.
type settings struct {
	// options returns a copy. As a function, it keeps the password out of
	// printed settings.
	options   func() *redis.Options
	timeout   time.Duration
	namespace string
	grace     time.Duration // zero means timeout
	replicas  int           // how many have to confirm each heartbeat
	emptyNew  bool          // a store without data needs no grace period
	addrs     []string      // in the order to try them
	tls       *tlsFiles
	secret    dsn.Secret
	sentinel  *sentinel
	watchers  dsn.Secret // the Sentinels' password

	// dialer is the existing client's dialer, or nil. It does TLS, and finds
	// the master if the client uses Sentinel.
	dialer func(ctx context.Context, network, addr string) (net.Conn, error)
}

type sentinel struct {
	master  string
	options func() *redis.Options // without Addr
}

const (
	defaultTimeout   = 10 * time.Second
	minTimeout       = 100 * time.Millisecond
	maxTimeout       = 24 * time.Hour
	defaultNamespace = "dlock"
	maxNamespace     = 64
	maxReplicas      = 16
)

// graceTime returns how long no lock is granted after a loss of data.
func (s *settings) graceTime() time.Duration { return max(s.grace, s.timeout) }

// key adds a hash tag, so that a cluster keeps a namespace on one server.
func (s *settings) key(name string) string { return "{" + s.namespace + "}:" + name }

// parseDSN parses a data source name. Unlike those of url.Parse and go-redis,
// its errors never quote a password.
func parseDSN(text string) (*settings, error) {
	s, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("redisdriver: dsn: %w", err)
	}
	return s, nil
}

// checkSecrets rejects conflicting passwords. The argument is Driver.Password.
func (s *settings) checkSecrets(program func(context.Context) (string, error)) error {
	if s.sentinel == nil {
		if s.watchers.Changes() {
			return errors.New("parameter sentinel_password_file is only for Sentinel, with master_name")
		}
	} else if err := s.watchers.Check(s.sentinel.options().Password != "", nil); err != nil {
		return err
	}
	return s.secret.Check(s.options().Password != "", program)
}

// withSecret makes each new connection log in with the current password.
func withSecret(o redis.Options, secret *dsn.Secret) *redis.Options {
	if user := o.Username; secret.Changes() {
		o.CredentialsProviderContext = func(ctx context.Context) (string, string, error) {
			password, err := secret.Read(ctx)
			if err != nil {
				err = dialError{err}
			}
			return user, password, err
		}
	}
	return &o
}

func parse(text string) (*settings, error) {
	u, q, err := split(text)
	if err != nil {
		return nil, err
	}
	s := &settings{timeout: defaultTimeout, namespace: defaultNamespace}
	if err := s.takeOwn(u, q); err != nil {
		return nil, err
	}
	for i, name := range slices.Sorted(maps.Keys(q)) {
		if !slices.Contains(clientParameters, name) && !(q.Has("master_name") && slices.Contains(sentinelParameters, name)) {
			return nil, unknown(u, q, name, i)
		}
	}
	if q.Has("master_name") {
		return s, s.parseSentinel(u, q)
	}
	return s, s.parseServer(u, q)
}

// unknown returns the error for an unknown parameter. It omits names that may
// be part of a password with an unescaped &.
func unknown(u *url.URL, q url.Values, name string, i int) error {
	const list = "; the documentation of package redisdriver lists all parameters"
	secret, given := u.User.Password()
	switch {
	case slices.Contains(sentinelParameters, name):
		return fmt.Errorf("parameter %s is only for Sentinel, with master_name; otherwise write redis://user:password@host", name)
	case q.Has("password"):
		return fmt.Errorf("unknown parameter (number %d of the rest, in the order of the alphabet); in a password, write & as %%26"+list, i+1)
	case strings.Trim(name, parameterLetters) != "" || name == "" || given && strings.Contains(name, secret):
		return fmt.Errorf("unknown parameter (number %d of the rest, in the order of the alphabet)"+list, i+1)
	}
	return fmt.Errorf("unknown parameter %s"+list, name)
}

const parameterLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"

func split(text string) (*url.URL, url.Values, error) {
	if text == "" {
		return nil, nil, errors.New("empty; write for example redis://localhost:6379")
	}
	scheme, rest, found := strings.Cut(text, "://")
	switch scheme = strings.Replace(scheme, "valkey", "redis", 1); {
	case strings.Contains(scheme, "sentinel"):
		return nil, nil, errors.New("for Sentinel, write redis://sentinel1:26379,sentinel2:26379?master_name=NAME, or rediss:// with TLS")
	case !found || scheme != "redis" && scheme != "rediss" && scheme != "unix":
		return nil, nil, errors.New("the scheme is not redis://, rediss://, valkey://, valkeys:// or unix://")
	}
	escape := errors.New("not a URL; in a user or a password, write / as %2F, ? as %3F, # as %23, @ as %40 and % as %25")
	at := strings.LastIndexByte(rest, '@')
	if at >= 0 && strings.ContainsAny(rest[:at], "/?@") {
		return nil, nil, escape
	}
	rest, more, err := splitHosts(rest, at+1)
	if err != nil {
		return nil, nil, err
	}
	u, err := url.Parse(scheme + "://" + rest)
	if err != nil || u.Fragment != "" || strings.HasSuffix(text, "#") {
		return nil, nil, escape
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, nil, errors.New("the parameters are not of the form name=value&name=value with percent escapes")
	}
	if more != nil {
		q["addr"] = append(more, q["addr"]...)
	}
	for _, values := range q {
		for _, v := range values {
			if strings.ContainsFunc(v, unicode.IsControl) {
				return nil, nil, errors.New("a parameter contains a control character")
			}
		}
	}
	return u, q, nil
}

// splitHosts leaves only the first host in the list at rest[from], because
// url.Parse rejects lists.
func splitHosts(rest string, from int) (first string, more []string, err error) {
	list, after, port := rest[from:], "", "6379"
	if i := strings.IndexAny(list, "/?#"); i >= 0 {
		list, after = list[:i], list[i:]
	}
	if !strings.Contains(list, ",") {
		return rest, nil, nil
	}
	if strings.Contains(after, "master_name=") {
		port = "26379"
	}
	hosts, err := dsn.Hosts(list, port)
	if err != nil {
		return "", nil, err
	}
	return rest[:from] + hosts[0] + after, hosts[1:], nil
}

// clientParameters are those of go-redis. Some are accepted without effect.
var clientParameters = []string{"addr", "db", "protocol", "client_name", "max_retries", "min_retry_backoff", "max_retry_backoff",
	"dial_timeout", "read_timeout", "write_timeout", "pool_fifo", "pool_size", "pool_timeout", "min_idle_conns", "max_idle_conns",
	"max_active_conns", "conn_max_idle_time", "idle_timeout", "conn_max_lifetime", "max_conn_age", "skip_verify"}

var sentinelParameters = []string{"master_name", "username", "password"}

// takeOwn moves the driver's parameters, unknown to go-redis, from q to s.
func (s *settings) takeOwn(u *url.URL, q url.Values) error {
	f := &tlsFiles{}
	own := s.parameters()
	f.AddTo(own)
	for name, values := range q {
		if len(values) > 1 && name != "addr" && (own[name] != nil || slices.Contains(clientParameters, name)) {
			return fmt.Errorf("parameter %s is there twice", name)
		}
		known, err := own.Set(name, values[0])
		if err != nil {
			return err
		}
		if known {
			q.Del(name)
		}
	}
	if s.grace != 0 && s.grace < s.timeout {
		return errors.New("grace is less than session_timeout: leases have to end before it does")
	}
	secure := u.Scheme == "rediss"
	if !secure && q.Has("skip_verify") {
		return errors.New("parameter skip_verify needs the scheme rediss://")
	}
	if secure {
		s.tls = f
		f.skipVerify = q.Get("skip_verify") == "true" || q.Get("skip_verify") == "1"
	}
	return f.Check(secure, "the scheme rediss://")
}

func (s *settings) parameters() dsn.Parameters {
	p := make(dsn.Parameters)
	s.watchers.AddAs(p, "sentinel_password_file")
	s.secret.AddTo(p)
	maps.Copy(p, dsn.Parameters{
		"session_timeout": dsn.Duration(&s.timeout, minTimeout, maxTimeout),
		"grace":           dsn.Duration(&s.grace, minTimeout, maxTimeout),
		"replicas":        dsn.Int(&s.replicas, 0, maxReplicas),
		"empty_is_new":    dsn.Bool(&s.emptyNew),
		"namespace": func(v string) error {
			if s.namespace = v; !goodNamespace(v) {
				return fmt.Errorf("not of 1 to %d printable characters without braces and spaces", maxNamespace)
			}
			return nil
		},
	})
	return p
}

func goodNamespace(s string) bool {
	bad := func(r rune) bool {
		return !unicode.IsPrint(r) || strings.ContainsRune("{} ", r) || r == unicode.ReplacementChar
	}
	return s != "" && len(s) <= maxNamespace && !strings.ContainsFunc(s, bad)
}

func (s *settings) parseServer(u *url.URL, q url.Values) error {
	more := q["addr"]
	q.Del("addr")
	o, err := parseWith(redis.ParseURL, u, q)
	if err != nil {
		return err
	}
	s.addrs = append([]string{o.Addr}, more...)
	for i, addr := range more {
		if host, port, err := net.SplitHostPort(addr); err != nil || host == "" || port == "" || o.Network == "unix" {
			return fmt.Errorf("parameter addr, number %d, is not host:port of another server", i+1)
		}
	}
	return s.keep(o)
}

func (s *settings) parseSentinel(u *url.URL, q url.Values) error {
	f, err := parseWith(redis.ParseFailoverURL, u, q)
	if err != nil {
		return err
	}
	if f.MasterName == "" {
		return errors.New("parameter master_name is empty")
	}
	s.addrs = f.SentinelAddrs
	common := redis.Options{DialTimeout: f.DialTimeout, ReadTimeout: f.ReadTimeout, WriteTimeout: f.WriteTimeout}
	asking := common
	asking.Username, asking.Password = f.SentinelUsername, f.SentinelPassword
	s.sentinel = &sentinel{f.MasterName, func() *redis.Options { return withSecret(asking, &s.watchers) }}
	o := common
	o.Username, o.Password, o.DB, o.ClientName, o.Protocol = f.Username, f.Password, f.DB, f.ClientName, f.Protocol
	o.PoolSize, o.PoolTimeout, o.MinIdleConns, o.MaxIdleConns = f.PoolSize, f.PoolTimeout, f.MinIdleConns, f.MaxIdleConns
	o.PoolFIFO, o.MaxActiveConns, o.ConnMaxIdleTime, o.ConnMaxLifetime = f.PoolFIFO, f.MaxActiveConns, f.ConnMaxIdleTime, f.ConnMaxLifetime
	return s.keep(&o)
}

// parseWith lets go-redis parse the URL. It finds the invalid parameter itself,
// because an error from go-redis may quote the password.
func parseWith[T any](parse func(string) (T, error), u *url.URL, q url.Values) (parsed T, err error) {
	with := func(q url.Values) (T, error) {
		v := *u
		v.RawQuery = q.Encode()
		return parse(v.String())
	}
	if parsed, err = with(q); err == nil {
		return parsed, nil
	}
	if _, err := with(nil); err != nil {
		return parsed, errors.New("the host, the path or the number of the database is wrong (as in redis://localhost:6379/0 or unix:///run/redis.sock)")
	}
	for _, name := range slices.Sorted(maps.Keys(q)) {
		if _, err := with(url.Values{name: q[name]}); err != nil {
			return parsed, fmt.Errorf("parameter %s has a bad value", name)
		}
	}
	return parsed, errors.New("the parameters do not fit together")
}

// keep validates the options and overrides harmful ones, such as retries.
func (s *settings) keep(o *redis.Options) error {
	for name, d := range map[string]*time.Duration{"dial_timeout": &o.DialTimeout, "read_timeout": &o.ReadTimeout, "write_timeout": &o.WriteTimeout} {
		if *d < 0 {
			return fmt.Errorf("parameter %s is not positive: a request has to end at some time", name)
		}
	}
	if o.DB < 0 || o.PoolSize < 0 || o.PoolSize > maxPool || o.Protocol != 0 && o.Protocol != 2 && o.Protocol != 3 {
		return errors.New("parameter db, pool_size or protocol is out of range")
	}
	if o.PoolSize == 0 {
		o.PoolSize = defaultPool
	}
	if o.Protocol == 0 {
		o.Protocol = 2
	}
	if o.DialTimeout == 0 {
		o.DialTimeout = 5 * time.Second
	}
	o.MaxRetries, o.DialerRetries = -1, 1
	o.DisableIdentity = true
	o.TLSConfig = nil // the driver's dialer does TLS
	kept := *o
	s.options = func() *redis.Options { return withSecret(kept, &s.secret) }
	return nil
}

const (
	defaultPool = 8
	maxPool     = 1 << 16
)
