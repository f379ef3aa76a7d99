package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqlstore"
	"github.com/dlock-go/dlock/driver/dsn"
)

// options holds the parameters that this package adds to those of pgx.
type options struct {
	sqlstore.Settings
	schema string
	notify bool
	secret dsn.Secret
	// reload parses the URL again, which rereads the files that it names.
	reload func() (*pgx.ConnConfig, error)
}

func defaults() options {
	return options{Settings: sqlstore.Defaults(), schema: defaultSchema, notify: true}
}

const minConnectTimeout = 500 * time.Millisecond

// parseDSN splits a data source name into parts for pgx and for this package.
// No error quotes a part of the password.
func parseDSN(text string, program func(context.Context) (string, error)) (*pgx.ConnConfig, options, error) {
	o := defaults()
	if text != "" && !strings.Contains(text, "://") {
		text = urlOf(text)
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" ||
		strings.Contains(u.Opaque+u.EscapedPath(), "@") {
		return nil, o, errors.New("postgres: dsn: not a URL of the form postgres://user:password@host:5432/database " +
			"(write special characters of the password as %XX), nor of the form host=db dbname=database")
	}
	if strings.Contains(text, "#") {
		return nil, o, errors.New("postgres: dsn: # ends a URL (write a # of the password as %23)")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, o, errors.New("postgres: dsn: the part after the question mark is not of the form name=value&name=value")
	}
	hidden := strings.Contains(u.RawQuery, "@") || query.Has("password") || query.Has("sslpassword")
	parameters := o.parameters()
	for name, values := range query {
		known, err := parameters.Set(name, values[len(values)-1])
		if err != nil {
			return nil, o, fmt.Errorf("postgres: dsn: %w", err)
		}
		if known {
			query.Del(name)
		} else if !pgxParameters[name] {
			return nil, o, unknownParameter(name, hidden)
		}
	}
	if err := o.Check(); err != nil {
		return nil, o, fmt.Errorf("postgres: dsn: %w", err)
	}
	_, given := u.User.Password()
	if err := o.secret.Check(given || query.Has("password"), program); err != nil {
		return nil, o, fmt.Errorf("postgres: dsn: %w", err)
	}
	u.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // pgx does not decode a plus
	o.reload = func() (*pgx.ConnConfig, error) {
		config, err := pgx.ParseConfig(u.String())
		if err != nil {
			return nil, errors.New(reason(err, hidden))
		}
		return config, nil
	}
	config, err := o.reload()
	if err != nil {
		return nil, o, fmt.Errorf("postgres: dsn: %w", err)
	}
	switch query.Get("target_session_attrs") {
	case "read-write":
	case "", "any", "primary":
		config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsPrimary
	default:
		return nil, o, errors.New(`postgres: dsn: parameter "target_session_attrs" has to be primary or read-write: ` +
			"a session needs the primary server")
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout(config, o.Timeout)
	}
	config.RuntimeParams["client_encoding"] = "UTF8" // names must not depend on the database's encoding
	if config.DefaultQueryExecMode == pgx.QueryExecModeSimpleProtocol {
		config.RuntimeParams["standard_conforming_strings"] = "on" // pgx needs it to quote arguments
	}
	return config, o, nil
}

var (
	keyword = regexp.MustCompile(`^\s*(\w+)\s*=\s*(?s:'((?:[^'\\]|\\.)*)'|((?:[^'\\\s]|\\.)*))(?:\s+|$)`)
	escaped = regexp.MustCompile(`(?s)\\(.)`)
)

// urlOf converts libpq's form, name=value name=value, to a URL, and other texts
// to "".
func urlOf(text string) string {
	query := make(url.Values)
	for text != "" {
		m := keyword.FindStringSubmatch(text)
		if m == nil {
			return ""
		}
		query.Set(m[1], escaped.ReplaceAllString(m[2]+m[3], "$1"))
		text = text[len(m[0]):]
	}
	return (&url.URL{Scheme: "postgres", Path: "/", RawQuery: query.Encode()}).String()
}

// unknownParameter leaves out the name if hidden, because the name may be part
// of a password.
func unknownParameter(name string, hidden bool) error {
	if ofLibpq.MatchString(name) {
		return fmt.Errorf("postgres: dsn: parameter %q is of libpq, and pgx does not know it: leave it out", name)
	}
	if hidden {
		return errors.New("postgres: dsn: unknown parameter (it may be a part of the password: " +
			"write / in the password as %2F, ? as %3F, @ as %40 and & as %26)")
	}
	return fmt.Errorf("postgres: dsn: unknown parameter %q", name)
}

// With several hosts, the timeout is short, so that a heartbeat reaches the
// last one.
func connectTimeout(config *pgx.ConnConfig, sessionTimeout time.Duration) time.Duration {
	type host struct {
		name string
		port uint16
	}
	hosts := map[host]bool{{config.Host, config.Port}: true}
	for _, f := range config.Fallbacks { // one host may occur with and without TLS
		hosts[host{f.Host, f.Port}] = true
	}
	if len(hosts) == 1 {
		return sqlstore.ConnectLimit(sessionTimeout)
	}
	return max(sessionTimeout/4/time.Duration(len(hosts)), minConnectTimeout)
}

// pgxParameters are passed to pgx, which would report a mistyped parameter only
// when it connects.
var pgxParameters = map[string]bool{
	"host": true, "port": true, "database": true, "dbname": true, "user": true, "password": true, "passfile": true,
	"service": true, "servicefile": true, "connect_timeout": true, "application_name": true, "options": true,
	"sslmode": true, "sslkey": true, "sslcert": true, "sslrootcert": true, "sslpassword": true, "sslsni": true,
	"sslcertmode": true, "require_auth": true,
	"sslnegotiation": true, "channel_binding": true, "target_session_attrs": true, "krbsrvname": true, "krbspn": true,
	"default_query_exec_mode": true, "statement_cache_capacity": true, "description_cache_capacity": true,
	"search_path": true, "timezone": true, "min_protocol_version": true, "max_protocol_version": true,
}

// ofLibpq matches libpq parameters that pgx would pass on to the server.
var ofLibpq = regexp.MustCompile(`^(keepalives(_idle|_interval|_count)?|tcp_user_timeout|gss(encmode|lib|delegation)|sslcompression|sslcrl(dir)?|` +
	`ssl_m(in|ax)_protocol_version|hostaddr|requirepeer|fallback_application_name|load_balance_hosts|replication)$`)

func (o *options) parameters() dsn.Parameters {
	p := dsn.Parameters{
		"notify": dsn.Bool(&o.notify),
		"client_encoding": func(value string) error {
			if !strings.EqualFold(strings.ReplaceAll(value, "-", ""), "utf8") {
				return errors.New("not UTF8, which dlock needs")
			}
			return nil
		},
		"schema": func(value string) error {
			if o.schema = value; !schemaName.MatchString(value) || strings.HasPrefix(value, "pg_") {
				return errors.New("not a name of at most 40 lower-case letters, digits and underscores, without pg_ at its beginning")
			}
			return nil
		},
	}
	o.Settings.AddTo(p)
	o.secret.AddTo(p)
	return p
}

// reason returns pgx's error text without the data source name or parts of the
// password.
func reason(err error, hidden bool) string {
	text := err.Error()
	if _, after, ok := strings.Cut(text, "`: "); ok {
		text = after
	}
	if end := strings.IndexAny(text, "(:"); hidden && end >= 0 {
		text = strings.TrimSpace(text[:end])
	}
	return text
}
