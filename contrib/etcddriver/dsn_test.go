package etcddriver

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver/dsn"
	"github.com/dlock-go/dlock/internal/testenv"
)

func TestADataSourceNameIsReadInFull(t *testing.T) {
	s, err := parseDSN("etcd://shop:p%40ss%2F@etcd1,etcd2:2380,[::1]/a/b/?session_timeout=2m" +
		"&tls=true&tls_ca=ca.pem&tls_cert=c.pem&tls_key=k.pem&tls_server_name=etcd.example")
	require.NoError(t, err)
	require.Equal(t, []string{"etcd1:2379", "etcd2:2380", "[::1]:2379"}, s.endpoints)
	require.Equal(t, "shop", s.user)
	password, err := s.password(t.Context())
	require.NoError(t, err)
	require.Equal(t, "p@ss/", password)
	require.Equal(t, "a/b", s.prefix)
	require.Equal(t, 2*time.Minute, s.timeout)
	require.Equal(t, dsn.TLS{CA: "ca.pem", Cert: "c.pem", Key: "k.pem", ServerName: "etcd.example"}, s.files)
}

func TestADataSourceNameNeedsNoMoreThanAHost(t *testing.T) {
	s, err := parseDSN("etcd://etcd1")
	require.NoError(t, err)
	require.Equal(t, "dlock", s.prefix)
	require.Equal(t, 10*time.Second, s.timeout)
}

func TestABadDataSourceNameIsRefusedWithTheReason(t *testing.T) {
	testenv.RefuseDSNs(t, Driver{}, "etcddriver: ", "geheim", map[string]string{
		"":                    "the scheme is not etcd://",
		"http://etcd1:2379":   "the scheme is not etcd://",
		"etcd://etcd1:0":      "host 1: the port is not a number",
		"etcd://geheim@etcd1": "a user without a password",
		"etcd://shop:@etcd1":  "a user without a password",
		"etcd://shop:geheim@etcd1?password_file=/f": "a password and password_file",
		"etcd://etcd1?password_file=/f":             "a password without a user",
		"etcd://shop:geheim%zz@etcd1":               "the password has a bad percent escape",
		"etcd://shop:geheim/x@etcd1":                "an at sign after the hosts",
		"etcd://etcd1/a//b":                         "the prefix after the hosts is not a name",
		"etcd://etcd1/..":                           "the prefix after the hosts is not a name",
		"etcd://etcd1?timeout=geheim":               `parameter 1: "timeout" is not known`,
		"etcd://etcd1?session_timeout=1.5s":         "not a duration in whole seconds",
		"etcd://etcd1?session_timeout=0s":           "not a duration in whole seconds",
		"etcd://etcd1?tls_ca=ca.pem":                "a tls_ parameter without tls=true",
	})
}

func TestNoValueShowsAPassword(t *testing.T) {
	c, err := Driver{}.OpenConnector("etcd://shop:geheim@etcd1")
	require.NoError(t, err)
	settings := *c.(*connector).settings
	testenv.HideSecret(t, "geheim", c, settings, &settings)
}

func FuzzDSN(f *testing.F) {
	for _, dsn := range []string{"etcd://a", "etcd://u:p@a,b:1/x?tls=true", "etcd://[::1]:2/x/y?session_timeout=3s", "etcd://%@:%/?&="} {
		f.Add(dsn)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		s, err := parseDSN("etcd://shop:geheim1234@" + dsn)
		if err != nil {
			require.NotContains(t, err.Error(), "geheim1234")
			return
		}
		require.NotEmpty(t, s.endpoints)
		require.GreaterOrEqual(t, s.timeout, time.Second)
		require.False(t, strings.HasSuffix(s.root(), "//"))
	})
}
