package zkdriver

import (
	"io"
	"io/fs"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/doctortest"
	"github.com/dlock-go/dlock/internal/zktest"
)

func TestCheckOfASessionTimeoutThatTheServerRefusesOrReduces(t *testing.T) {
	server := zktest.Shared(t)
	found := doctortest.Check(t, Driver{}, "zk://"+server.Addr()+server.Chroot(t)+"?session_timeout=2h&lease_margin=30m")
	found.Has(t, driver.Problem, "lease_margin", "maxSessionTimeout")
	assert.Contains(t, adviceOn(fs.ErrPermission), "the user and the password")
	found = doctortest.Check(t, Driver{}, "zk://"+server.Addr()+server.Chroot(t)+"?session_timeout=2h")
	found.Has(t, driver.Warning, "a session timeout of 10m0s, although the client asks for 2h0m0s", "session_timeout")
	found.Has(t, driver.OK, "locks survive every outage of up to ", "")
	found.Has(t, driver.OK, "no queue has used more than", "")
}

func TestCheckOfSequencesThatAreNearlyUsedUp(t *testing.T) {
	b := newFixture(t, "sequence_limit=20")
	for range 19 {
		p := b.mustCreate("stock/42", "h-W-", "")
		require.NoError(t, b.Delete(within(t), "stock/42", p, driver.Changed))
	}
	found := doctortest.Check(t, Driver{}, "zk://"+b.server.Addr()+b.chroot+"?sequence_limit=20")
	found.Has(t, driver.Warning, `the queue "stock/42" has used 19 of 20`, "for a moment")
}

func words(t *testing.T, answers map[string]string) string {
	return doctortest.Listen(t, func(c net.Conn) {
		word := make([]byte, 4)
		if _, err := io.ReadFull(c, word); err == nil {
			_, _ = io.WriteString(c, answers[string(word)])
		}
	})
}

func TestCheckOfSettingsOfTheServer(t *testing.T) {
	srvr := func(version, mode string) string {
		return "Zookeeper version: " + version + "-abc, built on 2024-02-12 22:16 UTC\nLatency min/avg/max: 0/0.0/0\nMode: " + mode + "\n"
	}
	fine := map[string]string{"srvr": srvr("3.9.3", "follower"), "conf": "clientPort=2181\ntickTime=2000\n"}
	alone := map[string]string{"srvr": srvr("3.9.3", "standalone"), "conf": "tickTime=2000\n"}
	for name, c := range map[string]struct {
		servers      []map[string]string
		params       string
		level        driver.Level
		text, advice string
	}{
		"fine":        {[]map[string]string{fine}, "", driver.OK, "is follower, version 3.9.3", ""},
		"old":         {[]map[string]string{{"srvr": srvr("3.4.14", "leader"), "conf": "tickTime=2000\n"}}, "", driver.Warning, "never removes", "3.5.3"},
		"faulty":      {[]map[string]string{{"srvr": srvr("3.7.1", "leader"), "conf": "tickTime=2000\n"}}, "", driver.Warning, "ZOOKEEPER-4537", "latest release"},
		"no words":    {[]map[string]string{{"srvr": "srvr is not executed because it is not in the whitelist.\n"}}, "", driver.Unknown, "the word srvr: the server does not allow", "4lw.commands.whitelist"},
		"no conf":     {[]map[string]string{{"srvr": fine["srvr"], "conf": "conf is not executed because it is not in the whitelist.\n"}}, "", driver.Unknown, "the word conf: the server does not allow", "two of the server's ticks"},
		"no quorum":   {[]map[string]string{fine, {"srvr": "This ZooKeeper instance is not currently serving requests\n"}}, "", driver.Unknown, "no quorum", "the other servers"},
		"no answer":   {[]map[string]string{{}}, "", driver.Unknown, "no answer to the word srvr", "maxClientCnxns"},
		"two stores":  {[]map[string]string{alone, alone}, "", driver.Problem, "standalone", "one ensemble"},
		"slow ticks":  {[]map[string]string{{"srvr": fine["srvr"], "conf": "tickTime=6000\n"}}, "", driver.Warning, "less than two ticks of 6s", "12s or more"},
		"stated tick": {[]map[string]string{fine}, "tick_time=1s", driver.Problem, "tickTime 2s, and the data source name states 1s", "tick_time=2s"},
	} {
		t.Run(name, func(t *testing.T) {
			var hosts []string
			for _, answers := range c.servers {
				hosts = append(hosts, words(t, answers))
			}
			s, err := parseDSN("zk://" + strings.Join(hosts, ",") + "?" + c.params)
			require.NoError(t, err)
			found := doctortest.Findings(s.checkServers(within(t), 10*time.Second))
			found.Has(t, c.level, c.text, c.advice)
			for _, f := range found {
				if f.Level == driver.OK {
					assert.NotEqual(t, c.level, driver.Problem, "%v", f)
				}
			}
		})
	}
}
