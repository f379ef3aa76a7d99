package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/diagnose"
)

// Diagnose implements [driver.Diagnoser]. It checks the network connection to
// each server or Sentinel in the data source name, and everything else on the
// master.
func (c *connector) Diagnose(ctx context.Context, report func(driver.Finding)) error {
	s := c.settings
	quiet := &connector{settings: s, quiet: true, addrs: s.addrs}
	o := s.options()
	st := diagnose.Store{
		Connector: quiet, Timeout: s.timeout, Grace: s.graceTime(), Hosts: s.addrs, Explain: explainDiagnosis,
		Password: o.Password != "" || s.sentinel != nil && s.sentinel.options().Password != "",
		Inspect: func(ctx context.Context, ds driver.Session, report func(driver.Finding)) {
			ds.(*session).inspect(ctx, report)
		},
	}
	if o.Network == "unix" {
		st.Hosts, st.Local = nil, "the socket "+o.Addr
	}
	if s.tls != nil {
		st.TLS = s.tls.forHost
	}
	return diagnose.Run(ctx, st, report)
}

func explainDiagnosis(err error) (check driver.Check, advice string) {
	switch {
	case replied(err, "NOAUTH"), replied(err, "WRONGPASS"), replied(err, "ERR AUTH"), replied(err, "ERR invalid password"):
		return driver.CheckLogin, "correct the user and the password of the data source name"
	case errors.Is(err, redis.Nil):
		return driver.CheckLogin, "correct master_name in the data source name (SENTINEL MASTERS lists the names)"
	case replied(err, "ERR unknown command 'sentinel'"):
		return driver.CheckLogin, "name the Sentinels in the data source name, or leave master_name out: this is no Sentinel"
	case replied(err, "ERR unknown command 'evalsha'"):
		return driver.CheckLogin, "add master_name to the data source name if this is a Sentinel, or use the address of a server that has scripts"
	case forbidden(err):
		return driver.CheckRights, "give the user the permissions that the package documentation of redisdriver lists under \"The scripts\" (ACL SETUSER)"
	case replied(err, replyFull):
		return driver.CheckLogin, "raise the server's maxclients, or close other clients"
	case replied(err, "READONLY"):
		return driver.CheckSettings, "use the address of the master: this server is a replica, and its data may be old"
	case replied(err, "OOM"):
		return driver.CheckSettings, "raise the server's maxmemory, or remove data from it"
	case replied(err, "MISCONF"):
		return driver.CheckSettings, "free the server's disk, or correct its rights: it cannot save its data, and refuses changes"
	case replied(err, "NOREPLICAS"):
		return driver.CheckSettings, "start the replicas that the server's min-replicas-to-write demands"
	}
	return "", ""
}

// inspect checks the settings of the server to which the session is connected.
func (s *session) inspect(ctx context.Context, report func(driver.Finding)) {
	config, err := do(ctx, s.link, s.link.requests, func(c *redis.Client) (map[string]string, error) { return configuration(ctx, c) })
	found := weaknesses(config, err)
	info, err := do(ctx, s.link, s.link.requests, func(c *redis.Client) (string, error) { return c.Info(ctx, "server", "replication").Result() })
	version := "a server that does not show its version"
	if err != nil {
		found = append(found, driver.Finding{Check: driver.CheckSettings, Level: driver.Unknown,
			Text: "the server does not show whether it has replicas (INFO): " + err.Error(), Advice: "give the user the right +info"})
	} else {
		lines := parseInfo(info)
		version = "Redis " + lines["redis_version"]
		if lines["valkey_version"] != "" {
			version = "Valkey " + lines["valkey_version"]
		}
		replicas, _ := strconv.Atoi(lines["connected_slaves"])
		if k := s.settings.replicas; 2*k < replicas {
			found = append(found, driver.Finding{Check: driver.CheckSettings, Level: driver.Warning,
				Text: fmt.Sprintf("the server has %d replicas, and %d confirm each heartbeat: if one is promoted while this server still answers its clients, "+
					"a lock may have two holders", replicas, k),
				Advice: "set the parameter replicas to half the number of replicas at least"})
		}
		version += fmt.Sprintf(", a master with %d replicas; grace %v", replicas, s.settings.graceTime())
	}
	if len(found) == 0 {
		found = []driver.Finding{{Check: driver.CheckSettings, Text: version}}
	}
	for _, f := range found {
		report(f)
	}
	report(s.inspectSequences(ctx))
}

func parseInfo(text string) map[string]string {
	lines := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			lines[name] = value
		}
	}
	return lines
}

// lastSequence is the highest sequence. Once it is used, no node can be
// created.
const lastSequence = 1<<53 - 1

// inspectSequences checks how many sequences remain. The latest sequence is the
// server's time in microseconds, or higher if the server's clock was once
// ahead.
func (s *session) inspectSequences(ctx context.Context) driver.Finding {
	f := driver.Finding{Check: driver.CheckSequences}
	text, err := do(ctx, s.link, s.link.requests, func(c *redis.Client) (string, error) {
		return c.Get(ctx, s.settings.key("seq")).Result()
	})
	last, bad := strconv.ParseInt(text, 10, 64)
	switch {
	case errors.Is(err, redis.Nil):
		f.Text = "no sequence is used yet"
	case err != nil:
		f.Level, f.Text, f.Advice = driver.Unknown, err.Error(), "try again when the server is less busy"
	case bad != nil:
		f.Level, f.Text = driver.Problem, fmt.Sprintf("the key %s is not a number", s.settings.key("seq"))
		f.Advice = "find out which other program writes to the keys of this namespace, or use another namespace"
	case last > lastSequence-lastSequence/10:
		f.Level, f.Text = driver.Warning, fmt.Sprintf("the namespace has used sequences up to %d of %d", last, int64(lastSequence))
		f.Advice = "use another namespace for all clients"
	default:
		f.Text = fmt.Sprintf("room for %d more nodes", int64(lastSequence)-last)
	}
	return f
}
