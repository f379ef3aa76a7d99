package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

var _ driver.Checker = (*connector)(nil)

func (c *connector) Check(ctx context.Context) ([]driver.Finding, error) {
	quiet := &connector{settings: c.settings, quiet: true, addrs: c.settings.addrs}
	return session.Check(ctx, quiet, adviceOn, func(st session.Store) []driver.Finding {
		return append(st.(*backend).checkServer(ctx), st.(*backend).checkSequences(ctx))
	})
}

// adviceOn returns advice on an error that does not itself say what to do.
func adviceOn(err error) string {
	switch {
	case errors.Is(err, redis.Nil):
		return "correct master_name in the data source name (SENTINEL MASTERS lists the names)"
	case replied(err, "ERR unknown command 'sentinel'"):
		return "name the Sentinels in the data source name, or leave master_name out: this is no Sentinel"
	case replied(err, "ERR unknown command 'evalsha'"):
		return "add master_name to the data source name if this is a Sentinel, or use the address of a server that has scripts"
	case forbidden(err):
		return "give the user the permissions that docs/stores/redis.md lists (ACL SETUSER)"
	case replied(err, "READONLY"):
		return "use the address of the master: this server is a replica, and its data may be old"
	case replied(err, "OOM"):
		return "raise the server's maxmemory, or remove data from it"
	}
	return ""
}

func (b *backend) checkServer(ctx context.Context) []driver.Finding {
	config, err := do(ctx, b.link, func(c *redis.Client) (map[string]string, error) { return configuration(ctx, c) })
	found := weaknesses(config, err)
	info, err := do(ctx, b.link, func(c *redis.Client) (string, error) { return c.Info(ctx, "server", "replication").Result() })
	if err != nil {
		return append(found, driver.Finding{Level: driver.Unknown,
			Text: "the server does not show whether it has replicas (INFO): " + err.Error(), Advice: "give the user the right +info"})
	}
	lines := parseInfo(info)
	version := "Redis " + lines["redis_version"]
	if lines["valkey_version"] != "" {
		version = "Valkey " + lines["valkey_version"]
	}
	replicas, _ := strconv.Atoi(lines["connected_slaves"])
	if b.grace > b.graceTime() {
		found = append(found, driver.Finding{Level: driver.Warning,
			Text:   fmt.Sprintf("a session has a grace of %v: after a restart or a fail-over, nobody gets a lock for that long", b.grace),
			Advice: "give all clients the same parameters session_timeout and grace; a grace is forgotten with its last session"})
	}
	if k := int(b.link.confirmed.Load()); 2*k < replicas {
		return append(found, driver.Finding{Level: driver.Warning,
			Text: fmt.Sprintf("the server has %d replicas, and %d confirm each heartbeat: if one is promoted while this server still answers its clients, "+
				"a lock may have two holders", replicas, k),
			Advice: "set the parameter replicas to half the number of replicas at least"})
	}
	return append(found, driver.Finding{Text: fmt.Sprintf("%s, a master with %d replicas; grace %v", version, replicas, b.graceTime())})
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

// lastSequence is the highest sequence. After it, no node can be created.
const lastSequence = 1<<53 - 1

// checkSequences warns before the sequence numbers run out, as they do only
// after the clock was far ahead.
func (b *backend) checkSequences(ctx context.Context) (f driver.Finding) {
	text, err := do(ctx, b.link, func(c *redis.Client) (string, error) {
		return c.Get(ctx, b.key("seq")).Result()
	})
	last, bad := strconv.ParseInt(text, 10, 64)
	switch {
	case errors.Is(err, redis.Nil):
		f.Text = "no sequence is used yet"
	case err != nil:
		f.Level, f.Text, f.Advice = driver.Unknown, err.Error(), "try again when the server is less busy"
	case bad != nil:
		f.Level, f.Text = driver.Problem, fmt.Sprintf("the key %s is not a number", b.key("seq"))
		f.Advice = "find out which other program writes to the keys of this namespace, or use another namespace"
	case last > lastSequence-lastSequence/10:
		f.Level, f.Text = driver.Warning, fmt.Sprintf("the namespace has used sequences up to %d of %d", last, int64(lastSequence))
		f.Advice = "use another namespace for all clients"
	default:
		f.Text = fmt.Sprintf("room for %d more nodes", int64(lastSequence)-last)
	}
	return f
}
