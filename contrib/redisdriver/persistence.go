package redisdriver

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/driver"
)

// checkServer logs a warning for each server setting that weakens the driver's
// guarantees, once per connector. It fails if the server is unreachable or
// rejects this client.
func (c *connector) checkServer(ctx context.Context, s *session) error {
	c.mu.Lock()
	warned := c.warned
	c.mu.Unlock()
	if warned {
		return nil
	}
	l := s.link
	// Run a script that has no effect, because it follows redirects to the
	// master, whose settings are the ones that matter. The session to close
	// does not exist yet.
	if _, err := l.eval(ctx, l.upkeep, closeScript, s.id); err != nil {
		if o := l.settings.options(); l.settings.tls == nil && l.settings.dialer == nil && o.Network != "unix" && strings.Contains(err.Error(), noAnswer+l.address()) {
			return fmt.Errorf("%w; if this port is for TLS, write rediss://", err)
		}
		return err
	}
	config, err := do(ctx, l, l.upkeep, func(c *redis.Client) (map[string]string, error) {
		return configuration(ctx, c)
	})
	if err != nil && !permanent(err) {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.warned {
		return nil
	}
	c.warned = true
	if c.quiet {
		return nil
	}
	for _, f := range weaknesses(config, err) {
		slog.Default().WarnContext(ctx, "redisdriver: "+f.Text, "server", l.address(), "namespace", c.settings.namespace)
	}
	return nil
}

// weaknesses describes how the server may lose data with these settings. err is
// the error from reading the settings.
func weaknesses(config map[string]string, err error) (found []driver.Finding) {
	add := func(level driver.Level, text, advice string) {
		found = append(found, driver.Finding{Check: driver.CheckSettings, Level: level, Text: text, Advice: advice})
	}
	if err != nil {
		add(driver.Unknown, "the server does not show its settings (CONFIG GET): make sure that it has appendonly yes and appendfsync always",
			"give the user the right +config|get, or ask the operator of the server")
		return found
	}
	switch {
	case config["appendonly"] != "yes":
		add(driver.Warning, "the server has appendonly no: if it restarts, it has lost locks that are held, and grants them again",
			"set appendonly yes and appendfsync always")
	case config["appendfsync"] != "always":
		add(driver.Warning, "the server has appendfsync "+config["appendfsync"]+
			": if its machine fails, it loses the latest second or more, and may grant locks again that are held", "set appendfsync always")
	case config["no-appendfsync-on-rewrite"] == "yes":
		add(driver.Warning, "the server has no-appendfsync-on-rewrite yes: if its machine fails while it rewrites its file "+
			"or saves its data, it loses the latest changes, and may grant locks again that are held", "set no-appendfsync-on-rewrite no")
	}
	if policy := config["maxmemory-policy"]; strings.HasPrefix(policy, "allkeys-") && config["maxmemory"] != "0" {
		add(driver.Warning, "the server has maxmemory-policy "+policy+": if its memory is full, it removes locks that are held",
			"set maxmemory-policy noeviction, or use a server of its own for locks")
	}
	return found
}

// configuration reads the server's settings with one CONFIG GET for each
// pattern, because Redis before version 7 accepts only one.
func configuration(ctx context.Context, client *redis.Client) (map[string]string, error) {
	all := make(map[string]string)
	for _, pattern := range []string{"*append*", "maxmemory*"} {
		found, err := client.ConfigGet(ctx, pattern).Result()
		if err != nil {
			return nil, err
		}
		maps.Copy(all, found)
	}
	return all, nil
}
