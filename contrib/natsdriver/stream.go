package natsdriver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dlock-go/dlock/driver/session/cas"
)

// wanted returns the settings that a stream must have. It must not have those
// that are nil.
func (kv *kv) wanted() map[string]any {
	return map[string]any{
		"subjects": []string{kv.record(), kv.guard(), kv.queues(), kv.sessions()}, "storage": "file", "retention": "limits",
		"discard": "new", "max_msgs_per_subject": 1, "allow_atomic": true, "allow_msg_ttl": true, "allow_direct": true,
		"republish": map[string]any{"src": kv.queues(), "dest": kv.notices()},
		"max_age":   nil, "no_ack": nil, "sealed": nil, "persist_mode": nil, "mirror": nil, "sources": nil, "subject_transform": nil,
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
	Cluster struct {
		Name     string // empty if the server is in no cluster
		Replicas []struct {
			Name             string
			Offline, Current bool
		}
	}
}

func (i info) replicas() int {
	n, _ := i.Config["num_replicas"].(float64)
	return int(n)
}

// generation names the generation, which also depends on the number of replicas:
// see Unguarded.
func (i info) generation() string { return fmt.Sprint(i.Created, "/", i.replicas()) }

// stream returns the stream, and creates it if there is none.
func (kv *kv) stream(ctx context.Context) (i info, err error) {
	if err = kv.api(ctx, "STREAM.INFO", "", nil, &i); isCode(err, codeNoStream) {
		config := kv.wanted()
		maps.DeleteFunc(config, func(_ string, v any) bool { return v == nil })
		config["name"], config["num_replicas"] = string(kv.subjects), max(kv.settings.replicas, 1)
		if err = kv.api(ctx, "STREAM.CREATE", "", config, new(any)); err == nil {
			err = kv.api(ctx, "STREAM.INFO", "", nil, &i) // which lacks what an old server has ignored
		}
	}
	if err == nil {
		err = kv.check(i)
	}
	return i, err
}

// check returns an error if a stream has other settings than the driver needs.
func (kv *kv) check(i info) error {
	wanted := kv.wanted()
	if kv.settings.replicas > 0 {
		wanted["num_replicas"] = kv.settings.replicas
	}
	if list, ok := i.Config["subjects"].([]any); ok {
		slices.SortFunc(list, func(a, b any) int { return compareText(a, b) })
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		want, has := text(wanted[name]), text(i.Config[name])
		if want != has && !(want == "null" && (has == "0" || has == "false" || has == `"default"`)) {
			return serverError{fmt.Errorf("the stream %s has the setting %s: %s, and locks need %s", kv.subjects, name, has, want)}
		}
	}
	return nil
}

func text(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

func compareText(a, b any) int { return slices.Compare([]byte(text(a)), []byte(text(b))) }

// checkVersion fails if the server is too old for atomic batches.
func checkVersion(version string) error {
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n != 2 || major < 2 || major == 2 && minor < 12 {
		return serverError{fmt.Errorf("the server has the version %q, and locks need NATS 2.12 or later", version)}
	}
	return nil
}

// witness is the name of a consumer in memory that receives nothing. A server
// that is not in a cluster loses it when it restarts, and when the stream is
// removed or restored.
const witness = "generation"

func (kv *kv) witness(ctx context.Context, create bool) (i info, err error) {
	if err = kv.api(ctx, "CONSUMER.INFO", "."+witness, nil, &i); isCode(err, codeNoConsumer) && create {
		config := map[string]any{"name": witness, "durable_name": witness, "ack_policy": "none", "deliver_policy": "new",
			"replay_policy": "instant", "filter_subject": kv.record(), "mem_storage": true}
		err = kv.api(ctx, "CONSUMER.CREATE", "."+witness+"."+kv.record(),
			map[string]any{"stream_name": string(kv.subjects), "action": "create", "config": config}, &i)
		if isCode(err, codeConsumerThere) {
			return kv.witness(ctx, false)
		}
	}
	return i, err
}

// current is what a session knows of the generation.
type current struct {
	name      string // empty until the session has begun
	lost      bool   // the session must not write any more
	clustered bool
	single    bool   // the stream has one replica
	server    string // that had the generation
}

func (kv *kv) present() current {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	return kv.data
}

func (kv *kv) set(now current) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	kv.data = now
}

// Unguarded implements [cas.Unguarded]. With one replica, a server writes a batch
// to files of its own and syncs them, which takes ten times as long as a message,
// and a read shows each write that was answered.
func (kv *kv) Unguarded() bool { return kv.present().single }

// record is the message about the generation of the data.
type record struct {
	Generation string
	Base       int64         // of its tokens
	Grace      time.Duration // the longest of any client
	Open       bool          // whether all leases of earlier sessions are over
}

const gracePause = 250 * time.Millisecond

// Generation implements [cas.Generational]. A generation is the time at which
// the stream was created in a cluster, or the witness elsewhere. A new one waits
// for the grace, by the clock of whoever first meets it.
func (kv *kv) Generation(ctx context.Context) (b cas.Generation, err error) {
	now := kv.present()
	if now.name != "" {
		b.Generation = now.name
		return b, kv.confirm(ctx, true)
	}
	if now.server, err = kv.mayListen(ctx); err != nil {
		return b, err
	}
	stream, err := kv.stream(ctx)
	if err != nil {
		return b, err
	}
	now.clustered, now.single = stream.Cluster.Name != "", stream.replicas() == 1
	if b.Generation = stream.generation(); !now.clustered {
		w, err := kv.witness(ctx, true)
		if err != nil {
			return b, err
		}
		b.Generation = w.generation()
	}
	r, err := kv.enter(ctx, stream, b.Generation)
	if err != nil {
		return b, err
	}
	if b.Base, now.name = r.Base, b.Generation; !r.Open {
		b.Rest = max(r.Grace-time.Since(kv.since(b.Generation)), time.Millisecond)
		b.Wait, now.name = min(b.Rest, gracePause), ""
	}
	kv.set(now)
	return b, nil
}

// enter returns the record of a generation, after it has recorded what this
// session knows.
func (kv *kv) enter(ctx context.Context, stream info, generation string) (r record, err error) {
	for {
		m, err := kv.last(ctx, kv.record())
		var before record
		if err == nil && m.Seq > 0 {
			err = json.Unmarshal(m.Data, &before)
		}
		if err != nil {
			return r, err
		}
		if r = before; r.Generation != generation {
			r = record{Generation: generation, Base: max(r.Base, stream.Now.UnixMicro()-stream.State.LastSeq),
				Open: kv.settings.emptyNew && stream.State.Messages == 0}
		}
		r.Grace = max(before.Grace, kv.settings.graceTime())
		r.Open = r.Open || time.Since(kv.since(generation)) >= r.Grace
		if r == before {
			return r, nil
		}
		write := conditional(kv.record(), m.Seq)
		write.Data = []byte(text(r))
		_, err = kv.publish(ctx, func() []*nats.Msg { return []*nats.Msg{write} })
		if !errors.Is(err, cas.ErrConflict) {
			return r, err
		}
	}
}

// generation returns the generation that the data have now.
func (kv *kv) generation(ctx context.Context, clustered bool) (string, error) {
	var i info
	var err error
	if clustered {
		err = kv.api(ctx, "STREAM.INFO", "", nil, &i)
	} else {
		i, err = kv.witness(ctx, false)
	}
	if isCode(err, codeNoStream, codeNoConsumer) {
		return "none", nil
	}
	return i.generation(), err
}

// confirm makes sure that the generation is still that of the session, after a
// write that may have been made in another one, because the session has another
// server than before, which may be the same one after a restart.
func (kv *kv) confirm(ctx context.Context, surely bool) error {
	known := kv.present()
	if known.lost {
		return errLost
	}
	l, err := kv.client(ctx)
	if err != nil || known.name == "" {
		return err
	}
	server := l.ConnectedServerId()
	if server == known.server && !surely {
		return nil
	}
	now, err := kv.generation(ctx, known.clustered)
	if err != nil {
		return err
	}
	if now != known.name {
		known.lost = true
		kv.set(known)
		return errLost
	}
	known.server = server
	kv.set(known)
	return nil
}

// mayListen fails if the user may not receive notices. It returns the ID of the
// server.
func (kv *kv) mayListen(ctx context.Context) (server string, err error) {
	l, err := kv.client(ctx)
	if err != nil {
		return "", err
	}
	server = l.ConnectedServerId()
	ctx, cancel := context.WithTimeout(ctx, kv.settings.requestTime())
	defer cancel()
	sub, err := l.SubscribeSync(kv.notices())
	if err == nil {
		defer func() { _ = sub.Unsubscribe() }()
		err = l.FlushWithContext(ctx)
	}
	if err != nil {
		return "", l.explain(err)
	}
	return server, l.denied(kv.notices())
}
