package natsdriver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/driver/session/cas"
)

// kv is a stream as one session sees it. Keys are subjects, values their latest
// messages, and revisions stream sequences.
type kv struct {
	settings *settings
	met      *sync.Map // see connector

	clustered bool
	name      string      // the session's generation; empty until the session begins
	lost      atomic.Bool // whether the session must not write any more

	turn  chan struct{} // guards the fields below; waiting can be cancelled
	link  *link         // latest connection, or nil
	avoid string        // address that the next dial skips, or empty
	found []string      // servers discovered through connections
}

var (
	_ cas.Watcher      = (*kv)(nil)
	_ cas.Generational = (*kv)(nil)
	_ cas.Unguarded    = (*kv)(nil)
)

// Unguarded implements [cas.Unguarded]. A check of a second key takes a batch.
// Batches are slow on a single server, and conflict in a cluster.
func (kv *kv) Unguarded() bool { return true }

// subject returns the NATS subject of a key.
func (s *settings) subject(key string) string {
	return s.stream + "." + strings.ReplaceAll(key, "/", ".")
}

func (s *settings) key(subject string) string {
	return strings.ReplaceAll(strings.TrimPrefix(subject, s.stream+"."), ".", "/")
}

// Close implements [cas.KV].
func (kv *kv) Close() error {
	kv.turn <- struct{}{}
	defer func() { <-kv.turn }()
	if kv.link != nil {
		kv.link.Close()
	}
	return nil
}

// ask makes a request with a time limit. The JSON answer may be an error of
// JetStream.
func (kv *kv) ask(ctx context.Context, m *nats.Msg, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, kv.settings.requestTime())
	defer cancel()
	l, err := kv.client(ctx)
	if err != nil {
		return err
	}
	reply, err := l.RequestMsgWithContext(ctx, m)
	if err != nil {
		return l.explain(err, m.Subject)
	}
	var failed struct{ Error *jetstream.APIError }
	if err := cmp.Or(json.Unmarshal(reply.Data, &failed), json.Unmarshal(reply.Data, answer)); err != nil {
		return fmt.Errorf("%s: %w", m.Subject, err)
	}
	if e := failed.Error; e == nil || e.Code < 500 { // from a leader
		l.silence.Reset(kv.settings.requestTime())
	}
	return mark(failed.Error)
}

// api makes a request about the stream to JetStream's API.
func (kv *kv) api(ctx context.Context, what, rest string, body, answer any) error {
	subject := "$JS.API." + what + "." + kv.settings.stream + rest
	return kv.ask(ctx, &nats.Msg{Subject: subject, Data: []byte(text(body))}, answer)
}

// text returns v as JSON. It is only for values that can't fail to marshal.
func text(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// read reads a message, if there is one. The answer may be old, because a
// deposed leader may send it.
func (kv *kv) read(ctx context.Context, which map[string]any) (cas.Entry, error) {
	var answer struct {
		Message struct {
			Subject string
			Seq     int64
			Data    []byte
		}
	}
	which["no_hdr"] = true
	err := kv.api(ctx, "STREAM.MSG.GET", "", which, &answer)
	if errors.Is(err, jetstream.ErrMsgNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) && kv.name == "" {
		err = nil
	}
	m := answer.Message
	return cas.Entry{Key: kv.settings.key(m.Subject), Value: m.Data, Revision: m.Seq}, err
}

// Get implements [cas.KV].
func (kv *kv) Get(ctx context.Context, key string) (cas.Entry, error) {
	e, err := kv.read(ctx, map[string]any{"last_by_subj": kv.settings.subject(key)})
	e.Key = key
	return e, err
}

// Scan implements [cas.KV]. It reads the oldest entries first, because Tidy
// needs these, and ctx may end early.
func (kv *kv) Scan(ctx context.Context) (all []cas.Entry, err error) {
	for from := int64(1); ; {
		e, err := kv.read(ctx, map[string]any{"seq": from, "next_by_subj": kv.settings.stream + ".>"})
		if err != nil || e.Revision == 0 {
			return all, err
		}
		if e.Value != nil && e.Key != recordKey {
			all = append(all, e)
		}
		from = e.Revision + 1
	}
}

// Write implements [cas.KV].
func (kv *kv) Write(ctx context.Context, e cas.Entry, _ ...cas.Entry) (int64, error) {
	if kv.lost.Load() {
		return 0, session.ErrLost
	}
	m := nats.NewMsg(kv.settings.subject(e.Key))
	if m.Data = e.Value; e.Value == nil {
		m.Header.Set(nats.MsgTTLHdr, "1h") // may expire: later messages have greater sequences anyway
	}
	if e.Note != "" {
		m.Header.Set(noteHeader, e.Note)
	}
	m.Header.Set(nats.ExpectedLastSubjSeqHdr, strconv.FormatInt(e.Revision, 10))
	var ack struct{ Seq int64 }
	err := kv.ask(ctx, m, &ack)
	if errors.Is(err, cas.ErrConflict) && kv.clustered { // a deposed leader may have answered
		err = fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
	}
	if err != nil {
		return 0, err
	}
	if err = kv.confirm(ctx, false); err != nil && !errors.Is(err, driver.ErrLostData) { // the message is stored
		err = fmt.Errorf("%w: the data may be lost: %v", driver.ErrUnavailable, err)
	}
	return ack.Seq, err
}

const noteHeader = "Dlock-Note"

// Watch implements [cas.Watcher]. A reply from the leader shows that all
// servers on the way know the subscription.
func (kv *kv) Watch(ctx context.Context, _ string, begun func(), changed func(cas.Entry)) error {
	l, err := kv.client(ctx)
	if err != nil {
		return err
	}
	sub, err := l.SubscribeSync(kv.settings.subject("n/>"))
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if _, err := kv.Get(ctx, recordKey); err != nil {
		return err
	}
	begun()
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return l.explain(err, "")
		}
		seq, _ := strconv.ParseInt(m.Header.Get(nats.JSSequence), 10, 64)
		changed(cas.Entry{Key: "q/" + strings.TrimPrefix(kv.settings.key(m.Subject), "n/"), Revision: seq, Note: m.Header.Get(noteHeader)})
	}
}
