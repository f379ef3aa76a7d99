package redisdriver

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver/session"

	"github.com/dlock-go/dlock/internal/testenv"
)

func TestABadDataSourceNameIsRefused(t *testing.T) {
	testenv.RefuseDSNs(t, Driver{}, "redisdriver: dsn: ", "hunter2", map[string]string{
		"":                                                        "empty",
		"localhost:6379":                                          "the scheme is not redis://, rediss://, valkey://, valkeys:// or unix://",
		"http://localhost":                                        "the scheme is not redis://",
		"redis://:hunter2/x@localhost":                            "write / as %2F",
		"redis://:hunter2?x@localhost":                            "write / as %2F",
		"redis://:hunter2@x@localhost":                            "@ as %40",
		"redis://:hunter2#x@localhost":                            "# as %23",
		"redis://:hunter2%zz@localhost":                           "not a URL",
		"redis://localhost:hunter2":                               "not a URL",
		"redis://localhost/hunter2":                               "the number of the database is wrong",
		"redis://localhost/1/2":                                   "the number of the database is wrong",
		"redis://localhost?x=%zz":                                 "not of the form name=value",
		"redis://localhost?hunter2=1":                             "unknown parameter (number 1",
		"redis://localhost?sesion_timeout=10s":                    "unknown parameter sesion_timeout;",
		"redis://:hunter2@localhost?namespace=a&Timeout=10s":      "unknown parameter Timeout;",
		"redis://s?master_name=m&password=hunt&hunter2=":          "write & as %26",
		"redis://localhost?empty_is_new=true&session_timeout=10":  "parameter session_timeout: not a duration",
		"redis://localhost?empty_is_new=true&session_timeout=9ms": "parameter session_timeout: not a duration",
		"redis://localhost?empty_is_new=true&session_timeout=1s&session_timeout=2s": "parameter session_timeout is there twice",
		"redis://localhost?namespace=":                                              "parameter namespace",
		"redis://localhost?namespace={a}":                                           "parameter namespace",
		"redis://localhost?read_timeout=hunter2":                                    "parameter read_timeout has a bad value",
		"redis://localhost?read_timeout=-1":                                         "parameter read_timeout is not positive",
		"redis://localhost?pool_size=many":                                          "parameter pool_size has a bad value",
		"redis://localhost?protocol=4":                                              "protocol is out of range",
		"redis://localhost?db=-1":                                                   "parameter db",
		"redis://localhost?tls_ca=ca.pem":                                           "a tls_ parameter without the scheme rediss://",
		"rediss://localhost?tls_cert=cert.pem":                                      "tls_cert and tls_key go together",
		"redis://localhost?addr=hunter2":                                            "parameter addr, number 1",
		"redis://:hunter2@localhost?password_file=/f":                               "a password and password_file",
		"redis://:hunter2@s?master_name=m&sentinel_password_file=/f":                "a password and sentinel_password_file",
		"redis://s?master_name=m&password=hunter2&password_file=/f":                 "a password and password_file",
		"redis://s?sentinel_password_file=/f":                                       "only for Sentinel",
		"redis://localhost?password=hunter2":                                        "parameter password is only for Sentinel",
		"redis://localhost?master_name=":                                            "master_name is empty",
		"redis://localhost?master_name=m&addr=hunter2":                              "parameter addr has a bad value",
		"unix://":                             "the host, the path",
		"redis+sentinel://a:26379/locks":      "for Sentinel, write redis://sentinel1:26379,",
		"redis://:hunter2@a,b:x/hunter2":      "host 2: ",
		"redis://a,,b":                        "host 2: ",
		"redis://:hunter2@a,b/1/2":            "the number of the database is wrong",
		"redis://localhost?client_name=a%0ab": "control character",
	})
}

func TestAnUnknownParameterThatMayBeOfAPasswordIsNotNamed(t *testing.T) {
	for _, dsn := range []string{
		"redis://localhost?master_name=m&password=open&sesame",
		"redis://localhost?sesame=1&master_name=m&pass%77ord=open",
		"redis://:sesame@localhost?sesame",
		"redis://:sesame@localhost?Xsesame_X=1",
		"redis://localhost?:sesame=1",
		"redis://localhost?=sesame",
	} {
		_, err := parseDSN(dsn)
		assert.ErrorContains(t, err, "unknown parameter (number ", dsn)
		assert.NotContains(t, err.Error(), "sesame", dsn)
	}
}

func TestADataSourceNameIsReadAsGoRedisDoes(t *testing.T) {
	s, err := parseDSN("rediss://app:p%40ss@[::1]:7000/3?empty_is_new=true&session_timeout=2s&namespace=shop&pool_size=4&read_timeout=1s&addr=other:7001&skip_verify=true&max_retries=9")
	require.NoError(t, err)
	o := s.options()
	require.Equal(t, []string{"[::1]:7000", "other:7001"}, s.addrs)
	require.Equal(t, []any{"app", "p@ss", 3, 4, time.Second, -1}, []any{o.Username, o.Password, o.DB, o.PoolSize, o.ReadTimeout, o.MaxRetries})
	require.Equal(t, []any{2 * time.Second, "{shop}:seq", true}, []any{s.timeout, s.key("seq"), s.tls.skipVerify})

	s, err = parseDSN("unix://app:pw@/run/redis.sock?db=2")
	require.NoError(t, err)
	o = s.options()
	require.Equal(t, []any{"unix", "/run/redis.sock", 2, "app", "pw"}, []any{o.Network, s.addrs[0], o.DB, o.Username, o.Password})

	s, err = parseDSN("redis://watcher:wpw@s1:26379/4?addr=s2:26379&master_name=locks&username=app&password=pw")
	require.NoError(t, err)
	o, asking := s.options(), s.sentinel.options()
	require.Equal(t, []string{"s1:26379", "s2:26379"}, s.addrs)
	require.Equal(t, []any{"locks", "app", "pw", 4}, []any{s.sentinel.master, o.Username, o.Password, o.DB})
	require.Equal(t, []any{"watcher", "wpw"}, []any{asking.Username, asking.Password})
}

func TestAliasesAndListsOfHosts(t *testing.T) {
	for dsn, same := range map[string]string{
		"valkey://a":                         "redis://a:6379",
		"valkeys://a:1/3":                    "rediss://a:1/3",
		"redis://:p,w@a,[::1]:7000,c/2?db=2": "redis://:p,w@a:6379/2?addr=[::1]:7000&addr=c:6379&db=2",
		"redis://a,b:1?addr=c:2":             "redis://a:6379?addr=b:1&addr=c:2",
		"rediss://a,b?master_name=locks":     "rediss://a:26379?addr=b:26379&master_name=locks",
	} {
		got, err := parseDSN(dsn)
		require.NoError(t, err, dsn)
		want, err := parseDSN(same)
		require.NoError(t, err)
		require.Equal(t, want.addrs, got.addrs, dsn)
		require.Equal(t, want.options(), got.options(), dsn)
		require.Equal(t, want.tls, got.tls, dsn)
		require.Equal(t, want.sentinel == nil, got.sentinel == nil, dsn)
	}
}

func TestNoValueShowsThePassword(t *testing.T) {
	for _, dsn := range []string{"redis://app:hunter2@localhost", "redis://x:hunter2@localhost?master_name=m&password=hunter2"} {
		c, err := Driver{}.OpenConnector(dsn)
		require.NoError(t, err)
		testenv.HideSecret(t, "hunter2", c, *c.(*connector).settings, c.(*connector).settings)
	}
}

func TestNoErrorHasAPartOfThePassword(t *testing.T) {
	testenv.KeepPasswords(t, func(dsn string) error {
		_, err := parseDSN(dsn)
		return err
	},
		"redis://shop:PASSWORD@db",
		"redis://shop:PASSWORD@db:6379/1?empty_is_new=true&session_timeout=3s",
		"redis://:PASSWORD@db",
		"redis://shop:PASSWORD@",
		"redis://shop:12/PASSWORD@db",
		"redis://shop:12?PASSWORD@db",
		"redis://s1:26379?addr=s2:26379&master_name=locks&password=PASSWORD",
		"redis://shop:PASSWORD@a,b",
		"redis://shop:1,PASSWORD@a,b",
		"redis://s1?master_name=locks&password=a&read_timeout=PASSWORD",
		"unix://shop:PASSWORD@/run/redis.sock",
	)
}

// FuzzDSN checks that each data source name is either rejected or yields usable
// settings.
func FuzzDSN(f *testing.F) {
	for _, s := range []string{"redis://localhost", "rediss://a:b@h:1/2?empty_is_new=true&session_timeout=1s", "unix:///p?db=1", "redis://h?master_name=m&addr=x:1", "redis://h?%zz", "redis://:a@b@c", "redis://a:b@c,d:1/2", "redis://h?namespace={}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		if s, err := parseDSN(dsn); err == nil {
			require.GreaterOrEqual(t, s.timeout, minTimeout)
			require.NotEmpty(t, s.addrs)
			require.True(t, strings.HasPrefix(s.key("seq"), "{") && strings.Count(s.key("seq"), "}") == 1)
			o := s.options()
			require.Equal(t, -1, o.MaxRetries)
			require.Positive(t, o.PoolSize)
			require.Positive(t, o.DialTimeout)
			require.GreaterOrEqual(t, o.ReadTimeout, time.Duration(0))
		} else {
			require.ErrorContains(t, err, "redisdriver: dsn: ")
		}
	})
}

// FuzzReplies checks that members and messages of other programs cause no
// panic.
func FuzzReplies(f *testing.F) {
	for _, s := range []string{"web-W-0000000001/s/1/data", "x", "a/b/c", "/", "web-W-0000000001", "-0000000001///"} {
		f.Add(s, "r/web-W-0000000001/1-ab/stock/42")
	}
	f.Fuzz(func(t *testing.T, text, message string) {
		m := parseMember(text)
		require.True(t, strings.HasPrefix(text, m.name))
		require.NotContains(t, m.name, "/")
		found, err := (&backend{id: "s"}).nodes([]any{text, "web-R-0000000007/s/2/"})
		require.NoError(t, err)
		require.Equal(t, session.Node{Name: "web-R-0000000007", Token: 7, Proof: "2"}, found[1])
		if n, ok := parseNotice(message); ok {
			require.NotContains(t, n.name, "/")
			require.True(t, strings.HasSuffix(message, n.name+"/"+n.proof+"/"+n.queue))
		}
	})
}
