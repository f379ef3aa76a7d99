package postgres

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqlstore"
	"github.com/dlock-go/dlock/internal/testenv"
)

const secret = "tr0ub4dor"

var secrets = []string{secret, "correct-horse"}

func TestBadDSNsSayWhatIsWrong(t *testing.T) {
	testenv.RefuseDSNs(t, Driver{}, "postgres: dsn: ", secret, map[string]string{
		"":                                    "not a URL of the form",
		"host=db password='" + secret:         "not a URL of the form",
		"host=db password=a " + secret + "=b": "may be a part of the password",
		"host=db password=" + secret + " keepalives_idle=5":                        `"keepalives_idle" is of libpq`,
		"postgres://db/l?client_encoding=latin1":                                   "client_encoding: not UTF8",
		"postgres://db/l?schema=pg_dlock":                                          "schema: not a name",
		"mysql://dlock:" + secret + "@db/locks":                                    "not a URL of the form",
		"postgres://dlock:" + secret + "%zz@db/locks":                              "not a URL of the form",
		"postgres://dlock:" + secret + "@db:port/locks":                            "not a URL of the form",
		"postgres://dlock:" + secret + "@db/l?a=%zz":                               "after the question mark",
		"postgres://dlock:" + secret + "@db/l?sesion_timeout=3s":                   `unknown parameter "sesion_timeout"`,
		"postgres://dlock@db/l?password=a%26b&" + secret:                           "in the password as %2F, ? as %3F, @ as %40 and & as %26",
		"postgres://db/l?user=dlock&password=a#" + secret:                          "write a # of the password as %23",
		"postgres://dlock:" + secret + "@db/l?session_timeout=1ms":                 `session_timeout: not a duration from 500ms`,
		"postgres://dlock:" + secret + "@db/l?session_timeout=2h":                  `session_timeout: not a duration`,
		"postgres://dlock:" + secret + "@db/l?schema=My-Schema":                    `schema: not a name`,
		"postgres://dlock:" + secret + "@db/l?schema=":                             `schema: not a name`,
		"postgres://dlock:" + secret + "@db/l?max_connections=2":                   `max_connections: not a number from 3`,
		"postgres://dlock:" + secret + "@db/l?password_file=/f":                    "a password and password_file",
		"host=db password=" + secret + " password_file=/f":                         "a password and password_file",
		"postgres://dlock:" + secret + "@db/l?notify=perhaps":                      `notify: neither true nor false`,
		"postgres://dlock:" + secret + "@db/l?sslmode=sometimes":                   "sslmode is invalid",
		"postgres://dlock:" + secret + "@db/l?sslrootcert=/no/such":                "unable to read CA file",
		"postgres://dlock:" + secret + "@db/l?target_session_attrs=prefer-standby": "has to be primary or read-write",
		"postgres://dlock@db/l?sslmode=sometimes&password=" + secret:               "failed to configure TLS",
		"postgres://dlock:" + secret + "@db/l?connect_timeout=" + "x":              "connect_timeout",
		"postgres://shop:12/cd?" + secret + "=3@":                                  "? as %3F",
		"postgres://shop:12/" + secret + "@db/l":                                   "not a URL of the form",
		"postgres://db/l?sslpassword=a&" + secret:                                  "& as %26",
		"postgres://db/l?password=a&connect_timeout=" + secret:                     "dsn: invalid connect_timeout",
	})
}

func TestDSNSetsTheOptions(t *testing.T) {
	c, err := Driver{}.OpenConnector("postgres://dlock:" + secret +
		"@db:5433/locks?session_timeout=3s&schema=jobs&max_connections=5&notify=false&application_name=shop")
	require.NoError(t, err)
	got := c.(*connector)
	got.options.reload = nil // functions are never equal
	want := options{Settings: sqlstore.Settings{Timeout: 3 * time.Second, Connections: 5}, schema: "jobs"}
	assert.Equal(t, want, got.options)
	if p := got.config.RuntimeParams; p["application_name"] != "shop" || p["client_encoding"] != "UTF8" || len(p) != 2 {
		t.Errorf("the server gets the parameters %v", got.config.RuntimeParams)
	}
	c, err = Driver{}.OpenConnector(`host = db port=5433 dbname=locks password='a \'b\\' client_encoding=utf-8 session_timeout=3s` +
		` schema=jobs max_connections=5 notify=false default_query_exec_mode=simple_protocol`)
	require.NoError(t, err)
	got = c.(*connector)
	got.options.reload = nil
	assert.Equal(t, want, got.options)
	assert.Equal(t, `a 'b\`, got.config.Password)
	assert.Equal(t, "on", got.config.RuntimeParams["standard_conforming_strings"])
	if got.server() != "db:5433/locks" {
		t.Errorf("server %q", got.server())
	}
}

func TestNoValuePrintsThePassword(t *testing.T) {
	c, err := Driver{}.OpenConnector("postgres://dlock:" + secret + "@db/locks")
	require.NoError(t, err)
	st := newStore(c.(*connector))
	testenv.HideSecret(t, secret, c, st)
}

func TestNoErrorHasAPartOfThePassword(t *testing.T) {
	t.Parallel()
	testenv.KeepPasswords(t, func(dsn string) error {
		_, err := Driver{}.OpenConnector(dsn)
		return err
	},
		"postgres://shop:PASSWORD@db/locks",
		"postgres://shop:PASSWORD@db:5432/locks?session_timeout=3s&timezone=UTC",
		"postgres://shop:12/PASSWORD@db/locks",
		"postgres://shop:12/cd?PASSWORD@db",
		"postgres://db/locks?user=shop&password=PASSWORD",
		"postgres://db/locks?password=a&connect_timeout=PASSWORD",
		"postgres://db/locks?sslpassword=PASSWORD",
		"postgres://shop:PASSWORD@",
		"host=db password=PASSWORD dbname=locks",
		"host=db password='PASSWORD' user=shop",
	)
}

func FuzzDSN(f *testing.F) {
	f.Add("postgres://dlock:" + secret + "@db/locks?session_timeout=3s")
	f.Fuzz(func(t *testing.T, dsn string) {
		c, err := Driver{}.OpenConnector(dsn)
		if (c == nil) == (err == nil) {
			t.Fatalf("connector %v, error %v", c, err)
		}
	})
}

func FuzzNotice(f *testing.F) {
	f.Add("r\nweb1-W-0000000007\nstock/42")
	f.Add("c\n\n")
	f.Fuzz(func(t *testing.T, payload string) {
		if n, ok := parseNotice(payload); ok && strings.Count(payload, "\n") < 2 {
			t.Fatalf("a notice without three parts gave %v", n)
		}
	})
}
