package natsdriver

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// config holds the settings of a stream that matter.
type config struct {
	Name             string          `json:"name"`
	Subjects         []string        `json:"subjects"`
	Storage          string          `json:"storage"`
	Replicas         int             `json:"num_replicas"`
	Retention        string          `json:"retention"`
	Discard          string          `json:"discard"`
	MaxMsgsPer       int64           `json:"max_msgs_per_subject"`
	MaxMsgs          int64           `json:"max_msgs,omitempty"`
	MaxBytes         int64           `json:"max_bytes,omitempty"`
	MaxAge           time.Duration   `json:"max_age,omitempty"`
	AllowAtomic      bool            `json:"allow_atomic"`
	AllowTTL         bool            `json:"allow_msg_ttl"`
	AllowDirect      bool            `json:"allow_direct"`
	RePublish        *republish      `json:"republish"`
	NoAck            bool            `json:"no_ack,omitempty"`
	Sealed           bool            `json:"sealed,omitempty"`
	PersistMode      string          `json:"persist_mode,omitempty"`
	Mirror           json.RawMessage `json:"mirror,omitempty"`
	Sources          json.RawMessage `json:"sources,omitempty"`
	SubjectTransform json.RawMessage `json:"subject_transform,omitempty"`
}

type republish struct {
	Source      string `json:"src"`
	Destination string `json:"dest"`
	HeadersOnly bool   `json:"headers_only,omitempty"`
}

func (kv *kv) config() config {
	return config{Name: string(kv.subjects), Subjects: []string{kv.queues(), kv.sessions(), kv.guard(), kv.generation()},
		Storage: "file", Replicas: max(kv.settings.replicas, 1), Retention: "limits", Discard: "new", MaxMsgsPer: 1,
		AllowAtomic: true, AllowTTL: true, AllowDirect: true, RePublish: &republish{Source: kv.queues(), Destination: kv.notices()}}
}

// check returns an error if a stream has other settings than the driver needs.
func (kv *kv) check(c config) error {
	want := kv.config()
	limited := c.MaxMsgs > 0 || c.MaxBytes > 0
	for _, s := range []struct {
		name      string
		ok        bool
		has, want any
	}{
		{"subjects", slices.Equal(sorted(c.Subjects), sorted(want.Subjects)), c.Subjects, want.Subjects},
		{"storage", c.Storage == want.Storage, c.Storage, want.Storage},
		{"num_replicas", kv.settings.replicas == 0 || c.Replicas == want.Replicas, c.Replicas, want.Replicas},
		{"retention", c.Retention == want.Retention, c.Retention, want.Retention},
		{"max_msgs_per_subject", c.MaxMsgsPer == 1, c.MaxMsgsPer, 1},
		{"discard", !limited || c.Discard == want.Discard, c.Discard, want.Discard},
		{"max_age", c.MaxAge == 0, c.MaxAge, 0},
		{"allow_atomic", c.AllowAtomic, false, true},
		{"allow_msg_ttl", c.AllowTTL, false, true},
		{"allow_direct", c.AllowDirect, false, true},
		{"republish", c.RePublish != nil && *c.RePublish == *want.RePublish, c.RePublish, *want.RePublish},
		{"no_ack", !c.NoAck, true, false},
		{"sealed", !c.Sealed, true, false},
		{"persist_mode", c.PersistMode != "async", c.PersistMode, "default"},
		{"mirror", c.Mirror == nil, "one", "none"},
		{"sources", c.Sources == nil, "some", "none"},
		{"subject_transform", c.SubjectTransform == nil, "one", "none"},
	} {
		if !s.ok {
			return fmt.Errorf("the stream %s has the setting %s = %v, and locks need %v: correct it (nats stream edit), or use another stream",
				c.Name, s.name, s.has, s.want)
		}
	}
	return nil
}

func sorted(s []string) []string { return slices.Sorted(slices.Values(s)) }

// info is what JetStream tells of a stream or a consumer.
type info struct {
	Config  config
	Created string
	Now     time.Time `json:"ts"`
	State   struct {
		Messages int64
		LastSeq  int64 `json:"last_seq"`
	}
	Cluster *struct {
		Leader   string
		Replicas []struct {
			Name             string
			Offline, Current bool
		}
	}
}

// generation names the generation. Sessions do different requests if a stream has
// one replica.
func (i info) generation() string {
	if i.Config.Replicas == 1 {
		return i.Created + " with one replica"
	}
	return i.Created
}

// stream returns the stream, and creates it if there is none.
func (kv *kv) stream(ctx context.Context) (i info, err error) {
	if err = kv.api(ctx, "STREAM.INFO", "", nil, &i); isCode(err, codeNoStream) {
		if err = kv.api(ctx, "STREAM.CREATE", "", kv.config(), &i); err == nil {
			err = kv.api(ctx, "STREAM.INFO", "", nil, &i) // what a server of an old release has ignored
		}
	}
	if err == nil {
		err = kv.check(i.Config)
	}
	return i, err
}

// witness is the name of a consumer in memory that receives nothing. A server
// that is not in a cluster loses it when it restarts, and when the stream is
// removed or restored.
const witness = "generation"

func (kv *kv) consumer(ctx context.Context, create bool) (i info, err error) {
	if err = kv.api(ctx, "CONSUMER.INFO", "."+witness, nil, &i); isCode(err, codeNoConsumer) && create {
		filter := kv.subjects.generation()
		err = kv.api(ctx, "CONSUMER.CREATE", "."+witness+"."+filter, map[string]any{"stream_name": string(kv.subjects), "action": "create",
			"config": map[string]any{"name": witness, "durable_name": witness, "ack_policy": "none", "deliver_policy": "new",
				"replay_policy": "instant", "filter_subject": filter, "mem_storage": true}}, &i)
		if isCode(err, codeConsumerThere) {
			return kv.consumer(ctx, false)
		}
	}
	return i, err
}

// current is what a session knows of the generation.
type current struct {
	name      string // empty until the session has begun
	base      int64
	clustered bool
	single    bool   // the stream has one replica
	server    string // to which the generation was the same
}

// Unguarded implements [cas.Unguarded]. With one replica, a server writes a batch
// to files of its own and syncs them, which takes ten times as long as a message,
// and a read shows each write that was answered.
func (kv *kv) Unguarded() bool {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	return kv.data.single
}

func (kv *kv) base() int64 {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	return kv.data.base
}

// record is the message about the generation of the data.
type record struct {
	Created string        // names the generation
	Base    int64         // of its revisions, which are greater than all earlier ones
	Grace   time.Duration // the longest of any client
	Open    bool          // whether all leases of earlier sessions are over
}

const gracePause = 250 * time.Millisecond

// Generation implements [cas.Generational]. A generation is the time at which
// the stream was created in a cluster, or the witness elsewhere. A new one waits
// for the grace, by the clock of whoever first meets it.
func (kv *kv) Generation(ctx context.Context) (b session.Begun, err error) {
	kv.mu.Lock()
	known := kv.data
	kv.mu.Unlock()
	if known.name != "" {
		b.Generation, err = kv.present(ctx, known.clustered)
		return b, err
	}
	server, err := kv.mayListen(ctx)
	if err != nil {
		return b, err
	}
	stream, err := kv.stream(ctx)
	if err != nil {
		return b, err
	}
	known = current{name: stream.generation(), clustered: stream.Cluster != nil, single: stream.Config.Replicas == 1, server: server}
	if !known.clustered {
		w, err := kv.consumer(ctx, true)
		if err != nil {
			return b, err
		}
		known.name = w.generation()
	}
	r, err := kv.enter(ctx, stream, known.name)
	if err != nil {
		return b, err
	}
	known.base, b.Generation = r.Base, known.name
	if !r.Open {
		b.Rest = max(r.Grace-time.Since(kv.since(known.name)), time.Millisecond)
		b.Wait = min(b.Rest, gracePause)
		known.name = ""
	}
	kv.mu.Lock()
	defer kv.mu.Unlock()
	kv.data = known
	return b, nil
}

// enter returns the record of a generation, and makes it if this session is the
// first one of the generation.
func (kv *kv) enter(ctx context.Context, stream info, generation string) (record, error) {
	for {
		var r record
		m, err := kv.last(ctx, kv.subjects.generation())
		if err == nil && m.Seq > 0 {
			err = json.Unmarshal(m.Data, &r)
		}
		if err != nil {
			return r, err
		}
		before := r
		if r.Created != generation {
			r = record{Created: generation, Base: max(r.Base, stream.Now.UnixMicro()-stream.State.LastSeq),
				Open: kv.settings.emptyNew && stream.State.Messages == 0}
		}
		r.Grace = max(before.Grace, kv.settings.graceTime())
		r.Open = r.Open || time.Since(kv.since(generation)) >= r.Grace
		if r == before {
			return r, nil
		}
		write := nats.NewMsg(kv.subjects.generation())
		write.Header.Set(headerExpected, fmt.Sprint(m.Seq))
		write.Data, _ = json.Marshal(r)
		if _, err = kv.publish(ctx, []*nats.Msg{write}); err == nil {
			return r, nil
		}
		if !isCode(err, codeWrongLast) && !isCode(err, codeInProcess) {
			return r, err
		}
	}
}

// present returns the generation that the data have now.
func (kv *kv) present(ctx context.Context, clustered bool) (string, error) {
	var i info
	var err error
	if clustered {
		err = kv.api(ctx, "STREAM.INFO", "", nil, &i)
	} else {
		i, err = kv.consumer(ctx, false)
	}
	if isCode(err, codeNoStream) || isCode(err, codeNoConsumer) {
		return "none", nil
	}
	return i.generation(), err
}

// confirm is called after each answered write. If the session has another
// server than before, it may have restarted, and the write may have been made in
// another generation.
func (kv *kv) confirm(ctx context.Context) error {
	kv.mu.Lock()
	known, l := kv.data, kv.link
	kv.mu.Unlock()
	if known.name == "" || l == nil {
		return nil
	}
	server := l.nc.ConnectedServerId()
	if server == known.server {
		return nil
	}
	now, err := kv.present(ctx, known.clustered)
	if err != nil {
		return err
	}
	if now != known.name {
		return fmt.Errorf("%w: %w", driver.ErrSessionEnded, driver.ErrLostData)
	}
	kv.mu.Lock()
	defer kv.mu.Unlock()
	kv.data.server = server
	return nil
}

// mayListen fails if the user may not receive notices. It returns the ID of the
// server.
func (kv *kv) mayListen(ctx context.Context) (server string, err error) {
	l, err := kv.client(ctx)
	if err != nil {
		return "", err
	}
	server = l.nc.ConnectedServerId()
	sub, err := l.nc.SubscribeSync(kv.notices())
	if err != nil {
		return "", requestError(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	ctx, cancel := context.WithTimeout(ctx, kv.settings.requestTime())
	defer cancel()
	if err := l.nc.FlushWithContext(ctx); err != nil {
		return "", requestError(err)
	}
	if _, err = sub.NextMsg(0); isDenied(err) {
		return "", permissionError{kv.notices(), err}
	}
	return server, nil
}

// checkVersion fails if the server is too old for atomic batches.
func checkVersion(version string) error {
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n != 2 || major < 2 || major == 2 && minor < 12 {
		return fmt.Errorf("the server has the version %q: locks need NATS 2.12 or later", version)
	}
	return nil
}
