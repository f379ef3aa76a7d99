package natsdriver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/driver/session/cas"
)

// recordKey is the key under which the generation's record is stored.
const recordKey = "generation"

func (s *settings) queues() string  { return s.subject("q/>") }
func (s *settings) notices() string { return s.subject("n/>") }

// wanted returns the settings that a stream must have. It must not have those
// with the value nil.
func (s *settings) wanted() map[string]any {
	return map[string]any{
		"subjects": []string{s.subject(recordKey), s.queues(), s.subject("s/>")}, "storage": "file", "retention": "limits", "discard": "new",
		"max_msgs_per_subject": 1, "allow_msg_ttl": true, "republish": map[string]any{"src": s.queues(), "dest": s.notices(), "headers_only": true},
		"max_age": nil, "no_ack": nil, "sealed": nil, "persist_mode": nil, "mirror": nil, "sources": nil, "subject_transform": nil,
	}
}

// info is what JetStream tells of a stream or a consumer.
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
	if err = kv.api(ctx, "STREAM.INFO", "", nil, &i); isCode(err, codeNoStream) {
		config := maps.Clone(wanted)
		maps.DeleteFunc(config, func(_ string, v any) bool { return v == nil })
		config["name"], config["num_replicas"] = kv.settings.stream, max(kv.settings.replicas, 1)
		if err = kv.api(ctx, "STREAM.CREATE", "", config, new(any)); err == nil {
			err = kv.api(ctx, "STREAM.INFO", "", nil, &i)
		}
	}
	if err != nil {
		return i, err
	}
	if kv.settings.replicas > 0 {
		wanted["num_replicas"] = kv.settings.replicas
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		want, has := text(wanted[name]), text(i.Config[name])
		if want != has && !(want == "null" && slices.Contains([]string{"0", "false", `"default"`}, has)) {
			return i, serverError{fmt.Errorf("the stream %s has the setting %s: %s, and locks need %s", kv.settings.stream, name, has, want)}
		}
	}
	return i, nil
}

// checkVersion fails if the server is too old.
func checkVersion(version string) error {
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n != 2 || major < 2 || major == 2 && minor < 12 {
		return serverError{fmt.Errorf("the server has the version %q, and locks need NATS 2.12 or later", version)}
	}
	return nil
}

// witness returns a consumer in memory that receives nothing, and creates it if
// create is set. A server without a cluster loses the consumer when it
// restarts, or when the stream is removed or restored.
func (kv *kv) witness(ctx context.Context, create bool) (i info, err error) {
	if !create {
		err = kv.api(ctx, "CONSUMER.INFO", ".generation", nil, &i)
		return i, err
	}
	filter := kv.settings.subject(recordKey)
	err = kv.api(ctx, "CONSUMER.CREATE", ".generation."+filter, map[string]any{"stream_name": kv.settings.stream, "action": "create",
		"config": map[string]any{"durable_name": "generation", "ack_policy": "none", "deliver_policy": "new", "replay_policy": "instant",
			"filter_subject": filter, "mem_storage": true}}, &i)
	return i, err
}

// current is what a session knows of the generation.
type current struct {
	name      string // empty until the session has begun
	lost      bool   // the session must not write any more
	clustered bool
	server    string // the server that was found to have the generation
}

// record is the message about the generation of the data.
type record struct {
	Generation string
	Base       int64         // of its tokens
	Grace      time.Duration // the longest of any client
	Open       bool          // whether all leases of earlier sessions are over
}

// Generation implements [cas.Generational]. A generation is named after the
// time at which the stream was created in a cluster, or the witness elsewhere.
// In a new one, sessions begin after some client has known it for the grace.
func (kv *kv) Generation(ctx context.Context) (b cas.Generation, err error) {
	now := *kv.data.Load()
	if now.name != "" {
		b.Generation = now.name
		return b, kv.confirm(ctx, true)
	}
	l, err := kv.client(ctx)
	if err != nil {
		return b, err
	}
	now.server = l.ConnectedServerId() // before it is asked
	stream, err := kv.stream(ctx)
	if err != nil {
		return b, err
	}
	b.Generation = stream.Created
	if now.clustered = stream.Cluster.Name != ""; !now.clustered {
		w, err := kv.witness(ctx, true)
		if err != nil {
			return b, err
		}
		b.Generation = w.Created
	}
	r, err := kv.enter(ctx, stream, b.Generation)
	if err != nil {
		return b, err
	}
	if b.Base, now.name = r.Base, b.Generation; !r.Open {
		b.Rest = max(r.Grace-kv.age(b.Generation), time.Millisecond)
		b.Wait, now.name = min(b.Rest, 250*time.Millisecond), ""
	}
	kv.data.Store(&now)
	return b, nil
}

// age returns for how long this process has known a generation.
func (kv *kv) age(generation string) time.Duration {
	first, _ := kv.met.LoadOrStore(generation, time.Now())
	return time.Since(first.(time.Time))
}

// enter returns the record of a generation, after it has recorded what this
// session knows.
func (kv *kv) enter(ctx context.Context, stream info, generation string) (r record, err error) {
	for {
		e, err := kv.Get(ctx, recordKey)
		var before record
		if err == nil && e.Value != nil {
			err = json.Unmarshal(e.Value, &before)
		}
		if err != nil {
			return r, err
		}
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
		if _, err = kv.Write(ctx, e); !errors.Is(err, cas.ErrConflict) {
			return r, err
		}
	}
}

// confirm makes sure that the generation is still that of the session. Unless
// surely is set, it makes no request as long as the connection is to the server
// that was asked last, because that server has not restarted since.
func (kv *kv) confirm(ctx context.Context, surely bool) error {
	known := *kv.data.Load()
	if known.lost {
		return session.ErrLost
	}
	l, err := kv.client(ctx)
	if err != nil || known.name == "" {
		return err
	}
	server := l.ConnectedServerId()
	if server == known.server && !surely {
		return nil
	}
	var i info
	if known.clustered {
		err = kv.api(ctx, "STREAM.INFO", "", nil, &i)
	} else {
		i, err = kv.witness(ctx, false)
	}
	if err != nil && !isCode(err, codeNoStream, codeNoConsumer) {
		return err
	}
	known.server, known.lost = server, i.Created != known.name
	kv.data.Store(&known)
	if known.lost {
		return session.ErrLost
	}
	return nil
}
