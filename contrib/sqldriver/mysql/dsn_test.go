package mysql

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqlstore"
	"github.com/dlock-go/dlock/driver/dsn"
	"github.com/dlock-go/dlock/internal/testenv"
)

const secret = "tr0ub4dor"

var secrets = []string{secret, "correct-horse"}

func TestBadDSNsSayWhatIsWrong(t *testing.T) {
	const start = "dlock:" + secret + "@tcp(db:3306)/locks?"
	testenv.RefuseDSNs(t, Driver{}, "mysql: dsn: ", secret, map[string]string{
		"":                                                         "not of the form",
		"host=db password=" + secret:                               "not of the form",
		"mysql://dlock:" + secret + "@db/locks":                    "not of the form",
		"dlock:" + secret + "@tcp(db:3306)":                        "not of the form",
		"dlock:" + secret + "@tcp(db:3306)/":                       "the name of the database is missing",
		"dlock:" + secret + "@tcp(db:3306)/?tls=true":              "the name of the database is missing",
		"dlock:" + secret + "@tcp(db:3306/locks":                   "the part before the parameters is not of the form",
		"dlock:" + secret + "@udp/locks":                           "not of the form user:password@tcp(",
		"dlock:" + secret + "@tcp(db:3306)/%zz":                    "the part before the parameters is not of the form",
		"dlock:" + secret + "@tcp(db)/" + strings.Repeat("d", 300): "longer than 256 bytes",
		"shop:12/cd?" + secret + "=3@tcp(db:3306)":                 "no slash behind the address",
		"dlock:" + secret + "@tcp(db1:3306,db2:3306)/locks":        "several addresses",
		"shop:12@" + secret + "/locks":                             "not of the form",
		start + "a":                                                "after the question mark",
		start + "timeout=%zz":                                      "after the question mark",
		start + "sesion_timeout=3s":                                `unknown parameter "sesion_timeout"`,
		start + "timestamp=1":                                      `unknown parameter "timestamp"`,
		start + "strict=true":                                      `unknown parameter "strict"`,
		start + "allowAllFiles=true":                               `unknown parameter "allowAllFiles"`,
		start + "session_timeout=1ms":                              `session_timeout: not a duration from 500ms`,
		start + "grace=5s":                                         "grace is less than session_timeout",
		start + "empty_is_new=perhaps":                             "empty_is_new: neither",
		start + "max_connections=2":                                `max_connections: not a number from 3`,
		start + "tls=perhaps":                                      `"tls" has a bad value`,
		start + "tls_ca=%2Fca.pem":                                 "a tls_ parameter without tls=true",
		start + "password_file=%2Ff":                               "a password and password_file",
		start + "readTimeout=soon":                                 `"readTimeout" has a bad value`,
		start + "parseTime=perhaps":                                `"parseTime" has a bad value`,
	})
}

func TestDSNSetsTheOptions(t *testing.T) {
	c, err := Driver{}.OpenConnector("dlock:" + secret +
		"/@tcp(db:3307)/locks?session_timeout=3s&max_connections=5&readTimeout=7s&tls=true&tls_ca=%2Fetc%2Fca.pem&tls_server_name=db1")
	require.NoError(t, err)
	got := c.(*connector)
	want := options{Settings: sqlstore.Settings{Timeout: 3 * time.Second, Connections: 5}, files: dsn.TLS{CA: "/etc/ca.pem", ServerName: "db1"}}
	assert.Equal(t, want, got.options)
	if got.config.ReadTimeout != 7*time.Second || got.config.Passwd != secret+"/" || len(got.config.Params) != 0 {
		t.Errorf("read timeout %v, variables of the server %v", got.config.ReadTimeout, got.config.Params)
	}
	if got.server() != "db:3307/locks" {
		t.Errorf("server %q", got.server())
	}
}

func TestConnectNamesTheFileThatIsWrong(t *testing.T) {
	file := t.TempDir() + "/empty"
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	escape := strings.NewReplacer("/", "%2F")
	for params, want := range map[string]string{
		"tls_ca=/no/such":                       "tls_ca: open /no/such",
		"tls_ca=" + file:                        "no certificate in " + file,
		"tls_cert=" + file + "&tls_key=" + file: "tls_cert and tls_key:",
	} {
		refused(t, "dlock:"+secret+"@tcp(127.0.0.1:1)/locks?tls=true&"+escape.Replace(params), want)
	}
}

func TestNoValuePrintsThePassword(t *testing.T) {
	c, err := Driver{}.OpenConnector("dlock:" + secret + "@tcp(db:3306)/locks")
	require.NoError(t, err)
	testenv.HideSecret(t, secret, c, newStore(c.(*connector)))
}

func TestArgumentsStayInTheirLiterals(t *testing.T) {
	got := callText("a`b", "dlock_x", []any{"'); DROP", []byte{0, '\\'}, int64(-7), true, hexArray{"'\"", "é"}, hexArray{}})
	want := "CALL `a``b`.dlock_x(X'27293b2044524f50', X'005c', -7, true, '[\"2722\",\"c3a9\"]', '[]')"
	assert.Equal(t, want, got)
}

func TestVersions(t *testing.T) {
	for text, want := range map[string]struct {
		product string
		version [3]int
		ok      bool
	}{
		"10.11.19-MariaDB-0+deb12u1-log": {"MariaDB", [3]int{10, 11, 19}, true},
		"5.5.5-10.4.1-MARIADB":           {"MariaDB", [3]int{10, 4, 1}, true},
		"8.0.36":                         {"MySQL", [3]int{8, 0, 36}, true},
		"8.4.0-commercial":               {"MySQL", [3]int{8, 4, 0}, true},
		"":                               {"MySQL", [3]int{}, false},
	} {
		product, version, ok := parseVersion(text)
		if product != want.product || version != want.version || ok != want.ok {
			t.Errorf("%q: %s %v %v", text, product, version, ok)
		}
	}
}

func TestNoErrorHasAPartOfThePassword(t *testing.T) {
	testenv.KeepPasswords(t, func(dsn string) error {
		_, err := Driver{}.OpenConnector(dsn)
		return err
	},
		"shop:PASSWORD@tcp(db:3306)/locks",
		"shop:PASSWORD@tcp(db)/locks?session_timeout=3s&timeout=1s",
		"shop:PASSWORD@tcp(db:3306)",
		"shop:PASSWORD@",
		"shop:PASSWORD/locks",
		"shop:a/b?PASSWORD@tcp(db)",
		"shop:a?timeout=PASSWORD@tcp(db)/locks",
		"mysql://shop:PASSWORD@db/locks",
	)
}

func FuzzDSN(f *testing.F) {
	f.Add("dlock:" + secret + "@tcp(db:3306)/locks?session_timeout=3s")
	f.Fuzz(func(t *testing.T, dsn string) {
		c, err := Driver{}.OpenConnector(dsn)
		if (c == nil) == (err == nil) {
			t.Fatalf("connector %v, error %v", c, err)
		}
	})
}

func FuzzVersion(f *testing.F) {
	f.Add("10.11.19-MariaDB-0+deb12u1-log", "OFF")
	f.Add("8.0.28", "1")
	f.Fuzz(func(t *testing.T, version, value string) {
		settings := map[string]string{"version": version, "read_only": value, "wsrep_on": value, "log_bin": "ON"}
		_ = unusable(settings)
		for _, message := range weaknesses(settings) {
			if message.Text == "" {
				t.Error("an empty message")
			}
		}
	})
}

// FuzzCall checks that no argument can end its SQL literal or begin a comment.
func FuzzCall(f *testing.F) {
	f.Add("stock/42", []byte("'; --"))
	f.Fuzz(func(t *testing.T, queue string, data []byte) {
		text := callText("d", "p", []any{queue, data, hexArray{queue}})
		arguments := strings.TrimSuffix(strings.TrimPrefix(text, "CALL `d`.p("), ")")
		for _, part := range strings.Split(arguments, ", ") {
			bare := strings.Trim(strings.TrimPrefix(part, "X"), `'[]"`)
			if strings.Trim(bare, "0123456789abcdef") != "" {
				t.Fatalf("%q", text)
			}
		}
	})
}
