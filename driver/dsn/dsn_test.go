package dsn_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/dsn"
	"github.com/dlock-go/dlock/internal/testenv"
)

type settings struct {
	user    string
	secret  dsn.Secret
	hosts   []string
	path    string
	timeout time.Duration
	limit   int
	tls     bool
	files   dsn.TLS
}

func parse(text string) (s settings, err error) {
	u, err := dsn.Split(text, "99")
	if err != nil {
		return s, err
	}
	if s.user, err = s.secret.Login(u.Login); err != nil {
		return s, err
	}
	s.hosts, s.path = u.Hosts, u.Path
	p := dsn.Parameters{
		"timeout": dsn.Duration(&s.timeout, time.Second, time.Hour),
		"limit":   dsn.Int(&s.limit, 3, 8),
		"tls":     dsn.Bool(&s.tls),
	}
	s.files.AddTo(p)
	s.secret.AddTo(p)
	if err := p.Parse(u.Query); err != nil {
		return s, err
	}
	return s, errors.Join(s.files.Check(s.tls, "tls=true"), s.secret.Check(false, nil))
}

func TestADataSourceNameIsReadInFull(t *testing.T) {
	s, err := parse("al%40ce:p%2F%3Aw:x@h1:2, [::1],[fe80::1%eth0]:7/a/b?timeout=2s&limit=8&tls=1&tls_ca=/c%26+a.pem&tls_cert=c&tls_key=k&tls_server_name=n")
	require.NoError(t, err)
	password, err := s.secret.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, "p/:w:x", password)
	require.NotContains(t, fmt.Sprintf("%+v", s), "p/:w")
	s.secret = dsn.Secret{}
	require.Equal(t, settings{
		user: "al@ce", hosts: []string{"h1:2", "[::1]:99", "[fe80::1%eth0]:7"}, path: "/a/b", timeout: 2 * time.Second, limit: 8,
		tls: true, files: dsn.TLS{CA: "/c&+a.pem", Cert: "c", Key: "k", ServerName: "n"},
	}, s)
}

func TestAnErrorNamesThePartAndNoValue(t *testing.T) {
	for text, want := range map[string]string{
		"":                            "no host",
		"@h":                          "the user is empty",
		"geheim@h":                    "a user without a password",
		":geheim@h":                   "the user is empty",
		"u%zz:geheim@h":               "the user has a bad percent escape",
		"u:geheim%zz@h":               "the password has a bad percent escape",
		"u:a/geheim@h":                "at sign",
		"u:a?geheim@h":                "at sign",
		"h,,geheim":                   "host 2: the name is empty",
		"u:geheim":                    "host 1: the port",
		"h:0":                         "host 1: the port",
		"h:+1":                        "host 1: the port",
		"h:":                          "host 1: the port",
		"h:65536":                     "host 1: the port",
		"::1":                         "needs brackets, as in [::1]:99",
		"[::1":                        "bracket is not closed",
		"[1.2.3.4]":                   "not an IPv6 address",
		"[fe80::1%a b]":               "the zone",
		"[::1]x":                      "follows the brackets",
		"h geheim":                    "character",
		"h?time=geheim":               `parameter 1: "time" is not known`,
		"h?tls=1&GEHEIM=geheim":       "parameter 2 is not known",
		"h?geheim":                    "parameter 1 is not known",
		"h?tls":                       "parameter tls has no value",
		"h?tls=1&tls=1":               "parameter tls is there twice",
		"h?tls=geheim%zz":             "parameter tls has a bad percent escape",
		"h?tls=geheim":                "parameter tls: neither true nor false",
		"h?timeout=geheim":            "parameter timeout: not a duration from 1s to 1h0m0s",
		"h?timeout=61m":               "parameter timeout: not a duration",
		"h?limit=2":                   "parameter limit: not a number from 3 to 8",
		"h?limit=geheim":              "parameter limit: not a number",
		"h?tls_ca=geheim":             "a tls_ parameter without tls=true",
		"h?tls=1&tls_cert=geheim":     "tls_cert and tls_key go together",
		"h?tls=1&tls_ca=":             "parameter tls_ca: empty",
		"u:geheim@h?password_file=/f": "a password and password_file",
		"h?password_file=/f":          "a password without a user",
	} {
		_, err := parse(text)
		assert.ErrorContains(t, err, want, text)
		if err != nil {
			assert.NotContains(t, strings.ToLower(err.Error()), "geheim", text)
		}
	}
}

func TestNoErrorHasAPartOfThePassword(t *testing.T) {
	testenv.KeepPasswords(t, func(text string) error {
		_, err := parse(text)
		return err
	}, "shop:PASSWORD@db", "shop:PASSWORD@db:1,db2/path?timeout=3s", "shop:PASSWORD@", "shop:12/PASSWORD@db", "shop:12?PASSWORD@db")
}

func TestAPasswordFile(t *testing.T) {
	file := t.TempDir() + "/file"
	settings, err := parse("u@h?password_file=" + file)
	require.NoError(t, err)
	s := settings.secret
	for text, want := range map[string]string{
		"new": "new", "p w/?:@%20\n": "p w/?:@%20", "windows\r\n": "windows",
		"": " is empty", "\n": " is empty", " geheim": " has a blank",
		"geheim\n\n": " has an unprintable character", "geheim\nmehr": " has an unprintable character",
	} {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644)) // Kubernetes mounts secrets with this mode
		password, err := s.Read(t.Context())
		if err == nil {
			assert.Equal(t, want, password)
			continue
		}
		assert.ErrorContains(t, err, file+want)
		assert.NotContains(t, err.Error(), "geheim")
		assert.ErrorAs(t, err, new(*dsn.FileError))
	}
	require.NoError(t, os.Remove(file))
	_, err = s.Read(t.Context())
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.Mkdir(file, 0o700))
	_, err = s.Read(t.Context())
	require.ErrorContains(t, err, "password_file: "+file+" is not a regular file")
}

func TestAFunctionReturnsThePassword(t *testing.T) {
	down := errors.New("the token service is down")
	program := func(context.Context) (string, error) { return "", down }
	var s dsn.Secret
	require.ErrorContains(t, s.Check(true, program), "although the program has")
	require.NoError(t, s.Check(false, program))
	_, err := s.Read(t.Context())
	require.ErrorIs(t, err, down)
	require.ErrorIs(t, err, driver.ErrUnavailable)
}

func TestFilesAreReadForEachConfiguration(t *testing.T) {
	certs := testenv.NewCerts(t)
	files := dsn.TLS{CA: certs.CA, Cert: certs.Client.Cert, Key: certs.Client.Key, ServerName: "db"}
	config, err := files.Config()
	require.NoError(t, err)
	require.Equal(t, "db", config.ServerName)
	require.EqualValues(t, tls.VersionTLS12, config.MinVersion)
	require.NotNil(t, config.RootCAs)
	require.Len(t, config.Certificates, 1)

	missing := filepath.Join(t.TempDir(), "missing")
	for want, files := range map[string]dsn.TLS{
		"tls_ca: open " + missing:                   {CA: missing},
		"tls_ca: no certificate in ":                {CA: certs.Client.Key},
		"tls_cert and tls_key: open " + missing:     {Cert: missing, Key: missing},
		"tls_cert and tls_key: tls: private key do": {Cert: certs.Client.Cert, Key: certs.Server.Key},
	} {
		_, err := files.Config()
		require.ErrorContains(t, err, want)
		require.ErrorAs(t, err, new(*dsn.FileError))
	}
	_, err = dsn.TLS{CA: missing}.Config()
	require.True(t, errors.Is(err, os.ErrNotExist))
}
