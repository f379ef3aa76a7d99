package mysql

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqlstore"
	"github.com/dlock-go/dlock/driver/dsn"
)

// options holds this package's own parameters of a data source name.
type options struct {
	sqlstore.Settings
	files  dsn.TLS
	secret dsn.Secret
}

func defaults() options { return options{Settings: sqlstore.Defaults()} }

const maxDatabase = 256 // 64 characters of four bytes

const form = "user:password@tcp(host:3306)/database?name=value&name=value"

// parseDSN splits a data source name into parts for go-sql-driver/mysql and for
// this package. No error repeats a part of the password.
func parseDSN(text string, program func(context.Context) (string, error)) (*mysql.Config, options, error) {
	o := defaults()
	slash := strings.LastIndexByte(text, '/')
	if slash < 0 || strings.Contains(text[:slash], "://") && !strings.ContainsAny(text[:slash], "@(") || isURL(text) {
		return nil, o, errors.New("mysql: dsn: not of the form " + form + " (write a slash in a parameter as %2F)")
	}
	database, query, _ := strings.Cut(text[slash+1:], "?")
	var rest []string
	parameters := o.parameters()
	tlsMode := ""
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		if name == "tls" {
			tlsMode = value
		}
		decoded, err := url.QueryUnescape(value)
		if !ok || err != nil {
			return nil, o, errors.New("mysql: dsn: the part after the question mark is not of the form name=value&name=value")
		}
		known, err := parameters.Set(name, decoded)
		switch {
		case err != nil:
			return nil, o, fmt.Errorf("mysql: dsn: %w", err)
		case known:
		case !clientParameters[name] && strings.Contains(text[slash:], "@"):
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
	if err := o.Check(); err != nil {
		return nil, o, fmt.Errorf("mysql: dsn: %w", err)
	}
	if err := o.files.Check(tlsMode == "true", "tls=true"); err != nil {
		return nil, o, fmt.Errorf("mysql: dsn: %w", err)
	}
	config, err := mysql.ParseDSN(text[:slash+1] + database + "?" + strings.Join(rest, "&"))
	if err != nil {
		return nil, o, wrongPart(rest)
	}
	if config.Net == "tcp" && strings.Contains(config.Addr, ",") {
		return nil, o, errors.New("mysql: dsn: several addresses: the form is " + form + ", with the address of the primary server, or of a proxy that finds it")
	}
	if len(config.DBName) > maxDatabase {
		return nil, o, fmt.Errorf("mysql: dsn: the name of the database is longer than %d bytes", maxDatabase)
	}
	if err := o.secret.Check(config.Passwd != "", program); err != nil {
		return nil, o, fmt.Errorf("mysql: dsn: %w", err)
	}
	// Discard the log, because the logged errors are also returned.
	config.Logger = new(mysql.NopLogger)
	return config, o, nil
}

// wrongPart says which part is wrong. An error from go-sql-driver/mysql could
// quote the password.
func wrongPart(parameters []string) error {
	for _, pair := range parameters {
		if _, err := mysql.ParseDSN("/?" + pair); err != nil {
			name, _, _ := strings.Cut(pair, "=")
			return fmt.Errorf("mysql: dsn: parameter %q has a bad value", name)
		}
	}
	return errors.New("mysql: dsn: the part before the parameters is not of the form " + form)
}

func isURL(text string) bool {
	scheme, _, ok := strings.Cut(text, "://")
	return ok && !strings.ContainsAny(scheme, ":@(/?")
}

// clientParameters are the accepted parameters. go-sql-driver/mysql would set
// others as server variables.
var clientParameters = map[string]bool{
	"allowCleartextPasswords": true, "allowFallbackToPlaintext": true, "allowNativePasswords": true, "allowOldPasswords": true,
	"charset": true, "checkConnLiveness": true, "clientFoundRows": true, "collation": true, "columnsWithAlias": true,
	"compress": true, "connectionAttributes": true, "interpolateParams": true, "loc": true, "maxAllowedPacket": true,
	"multiStatements": true, "parseTime": true, "readTimeout": true, "rejectReadOnly": true, "serverPubKey": true,
	"timeTruncate": true, "timeout": true, "tls": true, "writeTimeout": true,
}

func (o *options) parameters() dsn.Parameters {
	p := make(dsn.Parameters)
	o.Settings.AddTo(p)
	o.files.AddTo(p)
	o.secret.AddTo(p)
	return p
}

func (o *options) loadTLS(host string) (*tls.Config, error) {
	if o.files == (dsn.TLS{}) {
		return nil, nil
	}
	config, err := o.files.Config()
	if err == nil && config.ServerName == "" {
		config.ServerName = host
	}
	return config, err
}
