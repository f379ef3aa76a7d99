package natsdriver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session/cas"
)

var _ driver.Checker = (*connector)(nil)

// Check implements [driver.Checker].
func (c *connector) Check(ctx context.Context) ([]driver.Finding, error) {
	kv := c.open()
	defer kv.Close()
	found, err := kv.look(ctx)
	if err == nil {
		err = c.probe(ctx, kv)
	}
	if err == nil {
		return found, nil
	}
	err = fmt.Errorf("natsdriver: %w", err)
	if advice := adviceOn(err); advice != "" {
		return append(found, driver.Finding{Level: driver.Problem, Text: err.Error(), Advice: advice}), nil
	}
	return found, err
}

func adviceOn(err error) string {
	switch {
	case errors.As(err, new(permissionError)):
		return "let the operator allow the subjects that the package documentation of natsdriver lists"
	case errors.As(err, new(serverError)):
		return "correct that (nats stream edit), or name another stream or server in the data source name"
	case isCode(err, codeNoAPI, codeNoJetStream):
		return "turn JetStream on, for the server and for the user's account"
	}
	return ""
}

// probe begins a session, and makes a request of each other kind. None has an
// effect.
func (c *connector) probe(ctx context.Context, kv *kv) error {
	s, err := cas.Connect(ctx, kv, c.config(kv))
	if err != nil {
		return err
	}
	defer s.Close()
	limited, cancel := context.WithTimeout(ctx, c.settings.requestTime())
	defer cancel()
	never := cas.Entry{Key: "q/dlock-check", Value: []byte("{}"), Revision: math.MaxInt64 / 2}
	for _, guard := range [][]cas.Entry{nil, {never}} {
		if _, err := kv.Write(limited, never, guard...); !errors.Is(err, cas.ErrConflict) {
			return err
		}
	}
	_, err = kv.Scan(ctx)
	return err
}

// leastClustered is the session timeout that outlasts most elections.
const leastClustered = 20 * time.Second

// look returns what can be seen of the stream and its servers.
func (kv *kv) look(ctx context.Context) (found []driver.Finding, err error) {
	ctx, cancel := context.WithTimeout(ctx, kv.settings.requestTime())
	defer cancel()
	i, err := kv.stream(ctx)
	if err != nil {
		return nil, err
	}
	l, err := kv.client(ctx)
	if err != nil {
		return nil, err
	}
	add := func(level driver.Level, advice, format string, args ...any) {
		found = append(found, driver.Finding{Level: level, Text: fmt.Sprintf(format, args...), Advice: advice})
	}
	version := "NATS " + l.ConnectedServerVersion()
	const sync = "without sync_interval: always, which no client can see, a lock may have two holders after a power cut of "
	switch single := i.replicas() == 1; {
	case i.Cluster.Name == "":
		add(driver.OK, "", "%s without a cluster: each restart ends all sessions, and takes a grace of %v", version, kv.settings.graceTime())
	case single:
		add(driver.Warning, "give the stream three replicas (nats stream edit --replicas 3), or set sync_interval: always",
			"%s in a cluster, with one replica: %sits server", version, sync)
	default:
		add(driver.OK, "", "%s, with %d replicas: %smost of them at once", version, i.replicas(), sync)
		if kv.settings.timeout < leastClustered {
			add(driver.Warning, "raise session_timeout to 20s",
				"the session timeout is %v, and a cluster takes up to 10 s to elect a leader: locks may be lost then", kv.settings.timeout)
		}
		for _, r := range i.Cluster.Replicas {
			if r.Offline || !r.Current {
				add(driver.Warning, "let the operator look at this server (nats server report jetstream)", "the replica on %s is offline or behind", r.Name)
			}
		}
	}
	if kv.settings.emptyNew {
		add(driver.Warning, "leave empty_is_new out of the data source name", "empty_is_new is for tests: a lock may have two holders if the stream is removed")
	}
	add(driver.OK, "", "%d messages, and sequence %d, with room for %d more", i.State.Messages, i.State.LastSeq, math.MaxInt64/10-i.State.LastSeq)
	return found, nil
}
