package mysql

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// options are the parameters of a DSN that are not those of go-sql-driver/mysql.
type options struct {
	timeout                               time.Duration
	connections                           int
	tlsCA, tlsCert, tlsKey, tlsServerName string
}

func defaults() options {
	return options{timeout: 10 * time.Second, connections: 8}
}

const (
	minTimeout     = 500 * time.Millisecond
	maxTimeout     = time.Hour
	minConnections = 3   // a change, a heartbeat and a look
	maxDatabase    = 256 // 64 characters of four bytes
)

// form describes a DSN.
const form = "user:password@tcp(host:3306)/database?name=value&name=value"

// parseDSN splits a DSN into what go-sql-driver/mysql and what this package needs. No
// error holds a part of the password, even if the DSN has no database, so that its
// last slash is in the password.
func parseDSN(dsn string) (*mysql.Config, options, error) {
	o := defaults()
	slash := strings.LastIndexByte(dsn, '/')
	if slash < 0 || strings.Contains(dsn[:slash], "://") && !strings.ContainsAny(dsn[:slash], "@(") || isURL(dsn) {
		return nil, o, errors.New("mysql: dsn: not of the form " + form + " (write a slash in a parameter as %2F)")
	}
	database, query, _ := strings.Cut(dsn[slash+1:], "?")
	var rest []string
	tlsMode := ""
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		if name == "tls" {
			tlsMode = value
		}
		text, err := url.QueryUnescape(value)
		if !ok || err != nil {
			return nil, o, errors.New("mysql: dsn: the part after the question mark is not of the form name=value&name=value")
		}
		known, err := o.set(name, text)
		switch {
		case err != nil:
			return nil, o, fmt.Errorf("mysql: dsn: parameter %q %w", name, err)
		case known:
		case !clientParameters[name] && strings.Contains(dsn[slash:], "@"):
			return nil, o, errors.New("mysql: dsn: unknown parameter, or no slash behind the address: the form is " + form)
		case !clientParameters[name]:
			return nil, o, fmt.Errorf("mysql: dsn: unknown parameter %q", name)
		default:
			rest = append(rest, pair)
		}
	}
	if database == "" {
		return nil, o, errors.New("mysql: dsn: the name of the database is missing: " + form)
	}
	if tlsMode != "true" && o.tlsCA+o.tlsCert+o.tlsKey+o.tlsServerName != "" {
		return nil, o, errors.New("mysql: dsn: a tls_ parameter needs tls=true")
	}
	if (o.tlsCert == "") != (o.tlsKey == "") {
		return nil, o, errors.New("mysql: dsn: parameters tls_cert and tls_key go together")
	}
	config, err := mysql.ParseDSN(dsn[:slash+1] + database + "?" + strings.Join(rest, "&"))
	if err != nil {
		return nil, o, wrongPart(rest)
	}
	if len(config.DBName) > maxDatabase {
		return nil, o, fmt.Errorf("mysql: dsn: the name of the database is longer than %d bytes", maxDatabase)
	}
	config.Logger = new(mysql.NopLogger) // the errors that it would log are returned as well
	return config, o, nil
}

// wrongPart returns the error for a DSN that go-sql-driver/mysql does not accept,
// with these parameters. The client's own error repeats the part that it does not
// understand, which may be of the password.
func wrongPart(parameters []string) error {
	for _, pair := range parameters {
		if _, err := mysql.ParseDSN("/?" + pair); err != nil {
			name, _, _ := strings.Cut(pair, "=")
			return fmt.Errorf("mysql: dsn: parameter %q has a bad value", name)
		}
	}
	return errors.New("mysql: dsn: the part before the parameters is not of the form " + form)
}

// isURL reports whether the DSN begins as a URL does.
func isURL(dsn string) bool {
	scheme, _, ok := strings.Cut(dsn, "://")
	return ok && !strings.ContainsAny(scheme, ":@(/?")
}

// clientParameters are the parameters of go-sql-driver/mysql that a DSN may have. That
// package would send every other parameter to the server as a variable. Such a variable
// could change what statements mean, and a mistyped name would fail only at each
// connection.
var clientParameters = map[string]bool{
	"allowCleartextPasswords": true, "allowFallbackToPlaintext": true, "allowNativePasswords": true, "allowOldPasswords": true,
	"charset": true, "checkConnLiveness": true, "clientFoundRows": true, "collation": true, "columnsWithAlias": true,
	"compress": true, "connectionAttributes": true, "interpolateParams": true, "loc": true, "maxAllowedPacket": true,
	"multiStatements": true, "parseTime": true, "readTimeout": true, "rejectReadOnly": true, "serverPubKey": true,
	"timeTruncate": true, "timeout": true, "tls": true, "writeTimeout": true,
}

// set sets the option with that name, and reports whether there is one.
func (o *options) set(name, value string) (known bool, err error) {
	switch name {
	case "session_timeout":
		o.timeout, err = time.ParseDuration(value)
		if err != nil || o.timeout < minTimeout || o.timeout > maxTimeout {
			err = fmt.Errorf("is not a duration from %v to %v, such as 10s", minTimeout, maxTimeout)
		}
	case "max_connections":
		o.connections, err = strconv.Atoi(value)
		if err != nil || o.connections < minConnections {
			err = fmt.Errorf("is not a number of at least %d", minConnections)
		}
	case "tls_ca":
		o.tlsCA, err = notEmpty(value)
	case "tls_cert":
		o.tlsCert, err = notEmpty(value)
	case "tls_key":
		o.tlsKey, err = notEmpty(value)
	case "tls_server_name":
		o.tlsServerName, err = notEmpty(value)
	default:
		return false, nil
	}
	return true, err
}

func notEmpty(value string) (string, error) {
	if value == "" {
		return "", errors.New("is empty")
	}
	return value, nil
}

// loadTLS returns the configuration for TLS with the files that the options name, or
// nil if they name none.
func (o *options) loadTLS(host string) (*tls.Config, error) {
	if o.tlsCA+o.tlsCert+o.tlsServerName == "" {
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host}
	if o.tlsServerName != "" {
		config.ServerName = o.tlsServerName
	}
	if o.tlsCA != "" {
		text, err := os.ReadFile(o.tlsCA)
		if err != nil {
			return nil, fmt.Errorf("tls_ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("tls_ca: no certificate in %s", o.tlsCA)
		}
	}
	if o.tlsCert != "" {
		pair, err := tls.LoadX509KeyPair(o.tlsCert, o.tlsKey)
		if err != nil {
			return nil, fmt.Errorf("tls_cert and tls_key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
