package natsdriver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/driver/session/cas"
)

// recordKey is the key under which the generation's record is stored.
const recordKey = "generation"

// wanted returns the settings that a stream must have.
func (s *settings) wanted() map[string]any {
	w := map[string]any{
		"name": s.stream, "subjects": []string{s.subject(recordKey), s.subject("q/>"), s.subject("s/>")}, "storage": "file", "retention": "limits", "discard": "new",
		"max_msgs_per_subject": 1, "allow_msg_ttl": true, "republish": map[string]any{"src": s.subject("q/>"), "dest": s.subject("n/>"), "headers_only": true},
		"max_age": 0, "no_ack": false, "sealed": false, "persist_mode": "default", "mirror": nil, "sources": nil, "subject_transform": nil,
	}
	if s.replicas > 0 {
		w["num_replicas"] = s.replicas
	}
	return w
}

// info is JetStream's description of a stream or a consumer.
type info struct {
	Config  map[string]any
	Created string
	Now     time.Time `json:"ts"`
	State   struct {
		Messages int64
		LastSeq  int64 `json:"last_seq"`
	}
	Cluster struct{ Name string } // empty if the server is in no cluster
}

// stream returns the stream, and creates it if there is none.
func (kv *kv) stream(ctx context.Context) (i info, err error) {
	wanted := kv.settings.wanted()
	if err = kv.api(ctx, "STREAM.INFO", "", struct{}{}, &i); errors.Is(err, jetstream.ErrStreamNotFound) {
		err = kv.api(ctx, "STREAM.CREATE", "", wanted, &i)
	}
	if err != nil {
		return i, err
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		want, has := text(wanted[name]), text(i.Config[name])
		if want != has && !(has == "null" && slices.Contains([]string{"0", "false", `"default"`}, want)) {
			return i, serverError{fmt.Errorf("the stream %s has the setting %s: %s, and locks need %s", kv.settings.stream, name, has, want)}
		}
	}
	return i, nil
}

func checkVersion(version string) error {
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n != 2 || major < 2 || major == 2 && minor < 12 {
		return serverError{fmt.Errorf("the server has the version %q, and locks need NATS 2.12 or later", version)}
	}
	return nil
}

// generation names the data's generation. On a single server, it is the
// creation time of an in-memory consumer, which a restart or restore ends.
func (kv *kv) generation(ctx context.Context) (name string, err error) {
	var i info
	if kv.clustered {
		err = kv.api(ctx, "STREAM.INFO", "", struct{}{}, &i)
	} else {
		err = kv.api(ctx, "CONSUMER.CREATE", ".generation", map[string]any{"stream_name": kv.settings.stream, "config": map[string]any{
			"durable_name": "generation", "ack_policy": "none", "deliver_policy": "new", "replay_policy": "instant",
			"filter_subject": kv.settings.subject(recordKey), "mem_storage": true}}, &i)
	}
	return i.Created, err
}

// record is the message about the generation of the data.
type record struct {
	Generation string
	Base       int64         // added to revisions to make tokens
	Grace      time.Duration // longest grace of any client
	Open       bool          // whether all leases of earlier sessions are over
}

// Generation implements [cas.Generational]. Sessions of a new generation begin
// once any client has known the generation for as long as the grace.
func (kv *kv) Generation(ctx context.Context) (b cas.Generation, err error) {
	if kv.name != "" {
		b.Generation = kv.name
		return b, kv.confirm(ctx, true)
	}
	stream, err := kv.stream(ctx)
	if err != nil {
		return b, err
	}
	kv.clustered = stream.Cluster.Name != ""
	if b.Generation, err = kv.generation(ctx); err != nil {
		return b, err
	}
	r, err := kv.enter(ctx, stream, b.Generation)
	if err != nil {
		return b, err
	}
	if b.Base = r.Base; r.Open {
		kv.name = b.Generation
	} else {
		b.Rest = max(r.Grace-kv.age(b.Generation), time.Millisecond)
		b.Wait = min(b.Rest, 250*time.Millisecond)
	}
	return b, nil
}

// age returns for how long this process has known a generation.
func (kv *kv) age(generation string) time.Duration {
	first, _ := kv.met.LoadOrStore(generation, time.Now())
	return time.Since(first.(time.Time))
}

// enter returns the current generation's record, and stores it if it changed.
func (kv *kv) enter(ctx context.Context, stream info, generation string) (r record, err error) {
	for {
		e, err := kv.Get(ctx, recordKey)
		if err != nil {
			return r, err
		}
		var before record
		_ = json.Unmarshal(e.Value, &before) // without a record, the generation is new
		if r = before; r.Generation != generation {
			r = record{Generation: generation, Base: max(r.Base, stream.Now.UnixMicro()-stream.State.LastSeq),
				Open: kv.settings.emptyNew && stream.State.Messages == 0}
		}
		r.Grace = max(before.Grace, kv.settings.grace)
		r.Open = r.Open || kv.age(generation) >= r.Grace
		if r == before {
			return r, nil
		}
		e.Value = []byte(text(r))
		if _, err = kv.Write(ctx, e); !errors.Is(err, cas.ErrConflict) || !session.Sleep(ctx, 10*time.Millisecond) {
			return r, err
		}
	}
}

// confirm checks that the session's generation is still current. Unless again
// is set, it checks once per connection, because a server's restart breaks
// connections.
func (kv *kv) confirm(ctx context.Context, again bool) error {
	l, err := kv.client(ctx)
	if err != nil || kv.name == "" || l.confirmed.Load() && !again {
		return err
	}
	now, err := kv.generation(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return err
	}
	if now != kv.name {
		kv.lost.Store(true)
		return session.ErrLost
	}
	l.confirmed.Store(true)
	return nil
}
