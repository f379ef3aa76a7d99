package zkdriver

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/dsn"
	"github.com/dlock-go/dlock/internal/testenv"
)

func TestDSNIsReadInFull(t *testing.T) {
	s, err := parseDSN("zk://al%40ce:p%2F%3F%40%3Aw:x@h1:2182,[::1],h-2.example/a/b?session_timeout=4s&connect_timeout=7s&lease_margin=1s&tick_time=500ms" +
		"&acl=digest&tls=true&tls_ca=/c%26a.pem&tls_cert=/c.pem&tls_key=/k.pem&tls_server_name=zk&sequence_limit=77")
	require.NoError(t, err)
	password, err := s.secret.Read(t.Context())
	require.NoError(t, err)
	require.Equal(t, "p/?@:w:x", password)
	s.secret = dsn.Secret{}
	require.Equal(t, &settings{
		hosts: []string{"h1:2182", "[::1]:2181", "h-2.example:2181"}, chroot: "/a/b",
		user: "al@ce", login: true,
		sessionTimeout: 4 * time.Second, connectTimeout: 7 * time.Second, leaseMargin: time.Second, tick: time.Second / 2,
		aclMode: aclDigest, sequenceLimit: 77,
		tls: true, files: dsn.TLS{CA: "/c&a.pem", Cert: "/c.pem", Key: "/k.pem", ServerName: "zk"},
	}, s)
}

func TestPlainConnectStringIsADSN(t *testing.T) {
	s, err := parseDSN("h1:2181, h2,[fe80::1%eth0]:99/chroot/")
	require.NoError(t, err)
	require.Equal(t, []string{"h1:2181", "h2:2181", "[fe80::1%eth0]:99"}, s.hosts)
	require.Equal(t, "/chroot", s.chroot)
	require.Equal(t, 10*time.Second, s.sessionTimeout)
	require.Equal(t, 10*time.Second, s.connectTimeout)
	require.EqualValues(t, maxSequence, s.sequenceLimit)
	s, err = parseDSN("h?session_timeout=1h")
	require.NoError(t, err)
	require.Equal(t, 30*time.Second, s.connectTimeout, "package recipes abandons an attempt to connect after 30 s")
}

func TestDSNErrorNamesThePartAndNotThePassword(t *testing.T) {
	testenv.RefuseDSNs(t, Driver{}, "zkdriver: ", "heim", map[string]string{
		"":                           "no host",
		"redis://u:geheim@h":         "scheme",
		"zk://u@h":                   "without a password",
		"zk://u:geheim%zz@h":         "the password has a bad percent escape",
		"zk://u:ge/heim@h":           "at sign",
		"zk://u%3Av:geheim@h":        "colon",
		"zk://h:0":                   "host 1: the port",
		"zk://::1":                   "brackets",
		"zk://h/a//b":                "chroot",
		"zk://h/a/../b":              "chroot",
		"zk://h//":                   "chroot",
		"zk://h/zookeeper/x":         "belongs to the server",
		"zk://h/\x01":                "chroot",
		"zk://h?sesion_timeout=1s":   `"sesion_timeout" is not known`,
		"zk://h?acl=":                "acl: neither",
		"zk://h?tls_ca=/x":           "without tls=true",
		"zk://h?session_timeout=5":   "not a duration",
		"zk://h?connect_timeout=60s": "connect_timeout: not a duration from 1ms to 30s",
		"zk://h?lease_margin=6s":     "more than half",
		"zk://h?tick_time=5001ms":    "tick_time is more than half",
		"zk://h?tick_time=0s":        "tick_time: not a duration from",
		"zk://h?sequence_limit=0":    "not a number from 1",
		"zk://h?names=":              "names: neither dlock nor curator nor curator-mutex nor kazoo",
		"zk://h?names=Curator":       "names: neither dlock nor",
		"zk://h?acl=digest":          "needs a user",
		"zk://h?acl=creator":         "needs a user",
		"zk://u:geheim@h/\xff?a=b":   "chroot",
	})
}

func TestNothingPrintsThePassword(t *testing.T) {
	c, err := Driver{}.OpenConnector("zk://alice:geheim@h")
	require.NoError(t, err)
	settings := c.(*connector).settings
	s := &session{settings: settings}
	testenv.HideSecret(t, "geheim", c, settings, *settings, s, Driver{})
	testenv.KeepPasswords(t, func(dsn string) error {
		_, err := Driver{}.OpenConnector(dsn)
		return err
	}, "zk://alice:PASSWORD@h1:2181,h2:2182/locks?session_timeout=10s&acl=digest", "alice:PASSWORD@h?colour=red")
}

func TestReservedAndForeignNamesAreRefused(t *testing.T) {
	root, below := &settings{}, &settings{chroot: "/c"}
	require.ErrorIs(t, root.checkQueue("zookeeper"), driver.ErrBadName)
	require.ErrorIs(t, root.checkQueue("zookeeper/quota"), driver.ErrBadName)
	require.NoError(t, root.checkQueue("zookeepers"))
	require.NoError(t, below.checkQueue("zookeeper"))
	require.ErrorIs(t, below.checkQueue("lock/\U0001F600"), driver.ErrBadName)
	require.ErrorIs(t, checkPrefix("\U0001F600-"), driver.ErrBadName)
	require.ErrorIs(t, checkPrefix("a/b-"), driver.ErrBadName)
	require.NoError(t, below.checkQueue("über/日本"))
}

func TestEveryChildThatEndsInTenDigitsIsAContender(t *testing.T) {
	for child, want := range map[string]int64{
		"web1-W-0000000007": 7, "u__WRIT__0000000001": 1, "_c_u-lock-0000000002": 2, "u__lock__0000000003": 3, "lock-0000000004": 4, "0000000005": 5,
		"job-202401010000000006": 6, "x-2147483647": 2147483647, "x--2147483648": 2147483648, "x-W-" + strings.Repeat("9", 40): 9999999999,
	} {
		seq, ok := sequenceOf(child)
		require.True(t, ok, child)
		require.Equal(t, want, seq, child)
	}
	for _, child := range []string{"", "readme", "x-W-123456789", "0000000001~", "x-W-0000000001 ", "x-\uff10\uff11\uff12\uff13\uff14\uff15\uff16\uff17\uff18\uff19"} {
		_, ok := sequenceOf(child)
		require.False(t, ok, child)
	}
}

func FuzzDSN(f *testing.F) {
	f.Add("h1:2181,h2/chroot", "pass")
	f.Add("zk://u:p@h?acl=digest", "s3cr3t/?@")
	f.Add("[::1]:1/a?tls=true&tls_ca=%2f&tick_time=1s", "x")
	f.Fuzz(func(t *testing.T, dsn, password string) {
		const mark = "WXYZWXYZ"
		for _, login := range []string{url.PathEscape(mark + password), mark + password} {
			_, err := parseDSN("zk://user:" + login + "@" + strings.ReplaceAll(dsn, mark, ""))
			if err != nil && strings.Contains(err.Error(), mark) {
				t.Fatalf("the password shows in %v", err)
			}
		}
	})
}
