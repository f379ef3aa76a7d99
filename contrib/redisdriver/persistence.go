package redisdriver

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/driver"
)

// checkServer fails if the server rejects this client or may evict locks.
func (c *connector) checkServer(ctx context.Context, b *backend) error {
	l := b.link
	// A script follows redirects to the master, whose settings matter. No
	// session with this ID exists yet.
	if _, err := l.eval(ctx, closeScript, b.id); err != nil {
		if o := l.settings.options(); l.settings.tls == nil && l.settings.dialer == nil && o.Network != "unix" && strings.Contains(err.Error(), noAnswer+l.address()) {
			return fmt.Errorf("%w; if this port is for TLS, write rediss://", err)
		}
		return err
	}
	if l.settings.replicas == 0 && l.sentinels() {
		c.tellOnce(ctx, "sentinel", "redisdriver: a lock may have two holders after a fail-over by Sentinel, because no replica confirms heartbeats: "+
			"set the parameter replicas to half the number of replicas at least")
	}
	return b.checkSettings(ctx)
}

// checkSettings fails if the server may evict locks that are held.
func (b *backend) checkSettings(ctx context.Context) error {
	now := time.Now()
	b.looked.Store(&now)
	config, err := do(ctx, b.link, func(c *redis.Client) (map[string]string, error) {
		return configuration(ctx, c)
	})
	if err != nil && !permanent(err) {
		return err
	}
	for _, f := range weaknesses(config, err) {
		if f.Level == driver.Problem && !b.connector.quiet {
			return fmt.Errorf("%s: %s", f.Text, f.Advice)
		}
		b.connector.tellOnce(ctx, "settings", "redisdriver: "+f.Text, "server", b.link.address())
	}
	return nil
}

// settingsPause is the time after which a heartbeat checks the settings again.
const settingsPause = time.Minute

// weaknesses returns findings about settings by which the server may lose data
// unnoticed. err comes from reading them.
func weaknesses(config map[string]string, err error) (found []driver.Finding) {
	if err != nil {
		return []driver.Finding{{Level: driver.Unknown,
			Text:   "the server does not show its settings (CONFIG GET): make sure that its maxmemory-policy is noeviction",
			Advice: "give the user the right +config|get, or ask the operator of the server"}}
	}
	if policy := config["maxmemory-policy"]; strings.HasPrefix(policy, "allkeys-") && config["maxmemory"] != "0" {
		return []driver.Finding{{Level: driver.Problem,
			Text:   "the server has maxmemory-policy " + policy + ": if its memory is full, it removes locks that are held",
			Advice: "set maxmemory-policy noeviction, or use a server of its own for locks"}}
	}
	return nil
}

func configuration(ctx context.Context, client *redis.Client) (map[string]string, error) {
	return client.ConfigGet(ctx, "maxmemory*").Result()
}
