package redisdriver

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/driver/session"
)

// receipt records that enough replicas received an attempt to begin a session,
// or is zero.
type receipt struct {
	at         int64  // time by the store's clock, in microseconds
	generation string // replication ID of the replicas' master
}

// Begin implements [session.Store]. After a fail-over or restart, which changes
// the master's replication ID, no session begins until earlier leases have
// ended.
func (b *backend) Begin(ctx context.Context, _ time.Duration) (begun session.Begun, err error) {
	empty := "0"
	if b.emptyNew {
		empty = "1"
	}
	sent := time.Now()
	reply, err := b.link.evalConfirmed(ctx, openScript, b.id, b.timeout.Microseconds(), b.graceTime().Microseconds(), empty,
		b.received.at, b.received.generation, b.replicas, b.options().DB)
	if err != nil {
		return begun, err
	}
	parts, _ := reply.([]any)
	if len(parts) != 6 {
		return begun, errReply
	}
	if b.link.confirmBy(parts[5]) {
		b.connector.tellOnce(ctx, "replicas", "redisdriver: other clients of the namespace have more replicas confirm heartbeats, and so does this client now: "+
			"give all clients the same parameter replicas", "own", b.replicas, "most", parts[5])
		return b.Begin(ctx, b.timeout)
	}
	begun = session.Begun{Wait: micros(parts[0]), Rest: micros(parts[3]), Told: true}
	begun.Generation, _ = parts[1].(string)
	if begun.Wait == 0 {
		b.grace = micros(parts[2])
		if own := b.graceTime(); own < b.grace { // too short after a loss of all data
			b.connector.tellOnce(ctx, "graces", "redisdriver: other clients of the namespace have a longer grace: give all clients the same parameter grace, "+
				"at least their longest session_timeout", "own", own, "longest", b.grace)
		}
		return begun, nil
	}
	if b.link.confirmed.Load() > 0 {
		// Only the time from now on counts towards the grace: until replicas
		// received this attempt, they may have followed another master.
		now, _ := parts[4].(int64)
		b.received = receipt{at: now + time.Since(sent).Microseconds(), generation: begun.Generation}
	}
	b.connector.tellOnce(ctx, begun.Generation, "redisdriver: the store is new or has lost data: no lock is granted until all leases of earlier holders are over",
		"left", begun.Rest, "generation", begun.Generation)
	return begun, nil
}

func (c *connector) tellOnce(ctx context.Context, key, text string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.quiet || c.told[key] {
		return
	}
	if c.told == nil {
		c.told = make(map[string]bool)
	}
	c.told[key] = true
	slog.Default().WarnContext(ctx, text, append(args, "namespace", c.settings.namespace)...)
}

// confirmBy sets how many replicas must confirm heartbeats, at least as many as
// configured. It reports an increase.
func (l *link) confirmBy(replicas any) bool {
	n, _ := replicas.(int64)
	return l.confirmed.Swap(max(n, int64(l.settings.replicas))) < n
}

// evalConfirmed runs a script, and fails unless enough replicas confirm its
// changes. WAIT must use the same connection, because it covers no other.
func (l *link) evalConfirmed(ctx context.Context, script *redis.Script, args ...any) (any, error) {
	if l.confirmed.Load() == 0 {
		return l.eval(ctx, script, args...)
	}
	return do(ctx, l, func(client *redis.Client) (any, error) {
		reply, err := l.runConfirmed(ctx, client, script.EvalSha, args)
		if replied(err, "NOSCRIPT") {
			reply, err = l.runConfirmed(ctx, client, script.Eval, args)
		}
		return reply, err
	})
}

type runScript func(ctx context.Context, c redis.Scripter, keys []string, args ...any) *redis.Cmd

func (l *link) runConfirmed(ctx context.Context, client *redis.Client, run runScript, args []any) (any, error) {
	replicas := l.confirmed.Load()
	within := min(l.settings.timeout/8, client.Options().ReadTimeout/2)
	p := client.Pipeline()
	reply := run(ctx, p, []string{l.settings.key("seq")}, args...)
	confirmed := p.Do(ctx, "WAIT", replicas, within.Milliseconds())
	_, _ = p.Exec(ctx) // each command's error is checked below
	if reply.Err() != nil {
		return nil, reply.Err()
	}
	if n, err := confirmed.Int64(); err != nil {
		return nil, err
	} else if n < replicas {
		return nil, fmt.Errorf("%d of %d replicas have confirmed the heartbeat within %v", n, replicas, within)
	}
	return reply.Val(), nil
}
