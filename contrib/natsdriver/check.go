package natsdriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session/cas"
)

var _ driver.Checker = (*connector)(nil)

// Check implements [driver.Checker].
func (c *connector) Check(ctx context.Context) (found []driver.Finding, err error) {
	s, err := c.Connect(ctx)
	if err == nil {
		kv := c.open()
		found, err = kv.look(ctx)
		_, _ = kv.Close(), s.Close()
	}
	advice := ""
	switch {
	case err == nil:
		return found, nil
	case errors.Is(err, nats.ErrPermissionViolation):
		advice = "let the operator allow the subjects that the package documentation of natsdriver lists"
	case errors.As(err, new(serverError)):
		advice = "correct that (nats stream edit), or name another stream or server in the data source name"
	case isOff(err):
		advice = "turn JetStream on, for the server and for the user's account"
	default:
		return found, err
	}
	return append(found, driver.Finding{Level: driver.Problem, Text: err.Error(), Advice: advice}), nil
}

const synced = "without sync_interval: always, which no client can see, a lock may have two holders after a power cut of"

// look returns findings about the stream. It checks permissions by a write
// whose condition never holds, and by listening.
func (kv *kv) look(ctx context.Context) (found []driver.Finding, err error) {
	i, err := kv.stream(ctx)
	l, failed := kv.client(ctx)
	if err = cmp.Or(err, failed); err != nil {
		return nil, err
	}
	add := func(level driver.Level, advice, format string, args ...any) {
		found = append(found, driver.Finding{Level: level, Text: fmt.Sprintf(format, args...), Advice: advice})
	}
	version, replicas := "NATS "+l.ConnectedServerVersion(), text(i.Config["num_replicas"])
	switch {
	case i.Cluster.Name == "":
		add(driver.OK, "", "%s without a cluster: each restart ends all sessions, and takes a grace of %v", version, kv.settings.grace)
	case replicas == "1":
		add(driver.Warning, "give the stream three replicas (nats stream edit --replicas 3), or set sync_interval: always",
			"%s in a cluster, with one replica: %s its server", version, synced)
	default:
		add(driver.OK, "", "%s, with %s replicas: %s most of them at once", version, replicas, synced)
	}
	if i.Cluster.Name != "" && kv.settings.timeout < 20*time.Second {
		add(driver.Warning, "raise session_timeout to 20s", "with session_timeout=%v, sessions may end while a cluster elects a leader, for up to 10 s", kv.settings.timeout)
	}
	if kv.settings.emptyNew {
		add(driver.Warning, "leave empty_is_new out of the data source name", "empty_is_new is for tests: a lock may have two holders if the stream is removed")
	}
	add(driver.OK, "", "%d messages, and sequence %d, with room for %d more", i.State.Messages, i.State.LastSeq, math.MaxInt64/10-i.State.LastSeq)
	if _, err := kv.Write(ctx, cas.Entry{Key: "q/dlock-check", Value: []byte("{}"), Revision: math.MaxInt64 / 2}); !errors.Is(err, cas.ErrConflict) {
		return found, err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if err := kv.Watch(ctx, "", stop, nil); !errors.Is(err, context.Canceled) {
		return found, err
	}
	return found, nil
}
