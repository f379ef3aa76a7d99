package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"
)

// errGrace means that a session can't begin yet, because a holder from before a
// loss of data may still rely on its lease.
var errGrace = errors.New("leases of an earlier generation may not be over")

// receipt records the time by which enough replicas had received an attempt to
// begin a session, and the master that they had then. It is zero if unknown.
type receipt struct {
	at         int64  // by the store's clock, in microseconds
	generation string // the master's replication ID; "*" if replicas is zero
}

// awaitGrace begins the session in the store. If the data come from an earlier
// generation, as after a fail-over or restart, it first waits until all leases
// of that generation have expired.
func (c *connector) awaitGrace(ctx context.Context, s *session) error {
	began := time.Now()
	var received receipt
	if s.settings.replicas == 0 {
		received.generation = "*"
	}
	for waited := false; ; waited = true {
		var o opened
		sent := time.Now()
		err := s.lease.Begin(func() (err error) {
			if o, err = s.open(ctx, received); err == nil && o.wait > 0 {
				err = errGrace
			}
			return err
		})
		if err == nil {
			s.generation = o.generation
			if waited {
				s.graced = time.Since(began)
			}
			c.compareGrace(ctx, o)
		}
		if !errors.Is(err, errGrace) {
			return err
		}
		if s.settings.replicas > 0 {
			// The replicas may have followed another master until they
			// received this attempt. Send the time of receipt with the
			// next attempt.
			received = receipt{at: o.now + time.Since(sent).Microseconds(), generation: o.generation}
		}
		c.tellOnce(ctx, o.generation, "redisdriver: the store is new or has lost data: no lock is granted until all leases of earlier holders are over",
			"left", o.left, "generation", o.generation)
		if err := s.sleep(ctx, o); err != nil {
			return err
		}
	}
}

func (s *session) sleep(ctx context.Context, o opened) error {
	t := time.NewTimer(o.wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: the store is new or has lost data: no lock is granted for another %v, until all leases of earlier holders are over",
			cutShort(ctx), o.left.Round(100*time.Millisecond))
	}
}

// compareGrace warns if another client has a longer grace period. After a loss
// of all data, this client would not wait until the other's lease has expired.
func (c *connector) compareGrace(ctx context.Context, o opened) {
	if own := c.settings.graceTime(); own < o.grace {
		c.tellOnce(ctx, "graces", "redisdriver: other clients of the namespace have a longer grace: give all clients the same parameter grace, "+
			"at least their longest session_timeout", "own", own, "longest", o.grace)
	}
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

// opened is the reply of open.lua.
type opened struct {
	wait       time.Duration // until the next attempt; zero if the session has begun
	generation string
	grace      time.Duration // the longest grace period of any client
	left       time.Duration // what is left of the grace period
	now        int64         // the store's time, in microseconds
}

// open tries to begin the session in the store.
func (s *session) open(ctx context.Context, received receipt) (o opened, err error) {
	empty := "0"
	if s.settings.emptyNew {
		empty = "1"
	}
	reply, err := s.link.evalConfirmed(ctx, openScript, s.id, s.settings.timeout.Microseconds(), s.settings.graceTime().Microseconds(), empty, received.at, received.generation)
	if err != nil {
		return o, err
	}
	parts, _ := reply.([]any)
	if len(parts) != 5 {
		return o, errReply
	}
	micros := func(i int) time.Duration {
		n, _ := parts[i].(int64)
		return time.Duration(n) * time.Microsecond
	}
	o.generation, _ = parts[1].(string)
	o.wait, o.grace, o.left = micros(0), micros(2), micros(3)
	o.now, _ = parts[4].(int64)
	return o, nil
}

// evalConfirmed runs a script as a background request, and fails unless enough
// replicas confirm that they have received its changes. The script and the WAIT
// command use the same connection, because WAIT covers only changes made on its
// own connection.
func (l *link) evalConfirmed(ctx context.Context, script *redis.Script, args ...any) (any, error) {
	if l.settings.replicas == 0 {
		return l.eval(ctx, l.upkeep, script, args...)
	}
	return do(ctx, l, l.upkeep, func(client *redis.Client) (any, error) {
		reply, err := l.runConfirmed(ctx, client, script.EvalSha, args)
		if replied(err, "NOSCRIPT") {
			reply, err = l.runConfirmed(ctx, client, script.Eval, args)
		}
		return reply, err
	})
}

type runScript func(ctx context.Context, c redis.Scripter, keys []string, args ...any) *redis.Cmd

func (l *link) runConfirmed(ctx context.Context, client *redis.Client, run runScript, args []any) (any, error) {
	within := min(l.settings.timeout/8, client.Options().ReadTimeout/2)
	p := client.Pipeline()
	reply := run(ctx, p, []string{l.settings.key("seq")}, args...)
	confirmed := p.Do(ctx, "WAIT", l.settings.replicas, within.Milliseconds())
	_, _ = p.Exec(ctx) // both commands have their own errors
	if reply.Err() != nil {
		return nil, reply.Err()
	}
	if n, err := confirmed.Int64(); err != nil {
		return nil, err
	} else if n < int64(l.settings.replicas) {
		return nil, fmt.Errorf("%d of %d replicas have confirmed the heartbeat within %v", n, l.settings.replicas, within)
	}
	return reply.Val(), nil
}
