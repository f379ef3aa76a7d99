package natsdriver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/driver/session/cas"
)

// kv is a stream as one session sees it. A key is a subject, and its value the
// latest message with that subject. An empty message means that there is no
// value. A revision is a stream sequence.
type kv struct {
	settings *settings
	met      *sync.Map // see connector
	observes bool
	data     atomic.Pointer[current]

	turn  chan struct{} // has room for one element; full while the fields below are used
	link  *link         // the latest one, or nil
	avoid string        // address of the link that has broken; empty if the last dial failed
	found []string      // servers that the links have heard of
}

var (
	_ cas.Watcher      = (*kv)(nil)
	_ cas.Generational = (*kv)(nil)
	_ cas.Unguarded    = (*kv)(nil)
)

// Unguarded implements [cas.Unguarded]. A batch of two conditional messages
// would do as a write with a guard, but it takes ten times as long on a server
// without a cluster, and in a cluster, the batches of a session would conflict.
func (kv *kv) Unguarded() bool { return true }

// subject returns the subject of a key. Keys that begin with n/ mean notices.
func (s *settings) subject(key string) string {
	return s.stream + "." + strings.ReplaceAll(key, "/", ".")
}

func (s *settings) key(subject string) string {
	return strings.ReplaceAll(strings.TrimPrefix(subject, s.stream+"."), ".", "/")
}

// client returns the connection, and makes it if there is none.
func (kv *kv) client(ctx context.Context) (*link, error) {
	select {
	case kv.turn <- struct{}{}:
		defer func() { <-kv.turn }()
	case <-ctx.Done():
		return nil, session.Refused(fmt.Errorf("%w: no connection: %w", driver.ErrUnavailable, ctx.Err()))
	}
	if kv.link != nil && !kv.link.IsClosed() {
		return kv.link, nil
	}
	l, err := dial(ctx, kv.settings, kv.found, kv.avoid)
	kv.avoid = ""
	if err != nil {
		return nil, dialError(err)
	}
	kv.link, kv.avoid, kv.found = l, l.addr, append(kv.found, l.DiscoveredServers()...)
	if err := checkVersion(l.ConnectedServerVersion()); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
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

// ask makes a request, with a time limit even if ctx has none. It repeats the
// request if a server says that it knows no leader, because that answer may
// have come before the leader's.
func (kv *kv) ask(ctx context.Context, m *nats.Msg, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, kv.settings.requestTime())
	defer cancel()
	l, err := kv.client(ctx)
	if err != nil {
		return err
	}
	for {
		err := l.ask(ctx, m, answer)
		l.judge(err)
		if !isCode(err, codeNoMeta) || !session.Sleep(ctx, 20*time.Millisecond) {
			return err
		}
	}
}

// api makes a request about the stream to JetStream's API.
func (kv *kv) api(ctx context.Context, what, rest string, body, answer any) error {
	m := nats.NewMsg("$JS.API." + what + "." + kv.settings.stream + rest)
	if body != nil {
		m.Data = []byte(text(body))
	}
	return kv.ask(ctx, m, answer)
}

// text returns v as JSON. It is for types with which this never fails.
func text(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// read reads a message, if there is one. The answer may come from a deposed
// leader, and then the message may be missing or old.
func (kv *kv) read(ctx context.Context, which map[string]any) (e cas.Entry, err error) {
	var answer struct {
		Message struct {
			Subject string
			Seq     int64
			Data    []byte
		}
	}
	which["no_hdr"] = true
	err = kv.api(ctx, "STREAM.MSG.GET", "", which, &answer)
	switch {
	case isCode(err, codeNoMessage), kv.observes && isCode(err, codeNoStream):
		err = nil
	case isCode(err, codeNoStream) && kv.data.Load().name != "":
		err = session.ErrLost
	}
	m := answer.Message
	if e = (cas.Entry{Key: kv.settings.key(m.Subject), Revision: m.Seq}); len(m.Data) > 0 {
		e.Value = m.Data
	}
	return e, err
}

// Get implements [cas.KV].
func (kv *kv) Get(ctx context.Context, key string) (cas.Entry, error) {
	e, err := kv.read(ctx, map[string]any{"last_by_subj": kv.settings.subject(key)})
	e.Key = key
	return e, err
}

// Scan implements [cas.KV]. It reads first what has not changed for longest, so
// that this is not lost when its time is over.
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

// Write implements [cas.KV]. It repeats the message if no server took it, or if
// another write of the key was not yet applied.
func (kv *kv) Write(ctx context.Context, e cas.Entry, _ ...cas.Entry) (int64, error) {
	if kv.data.Load().lost {
		return 0, session.ErrLost
	}
	m := nats.NewMsg(kv.settings.subject(e.Key))
	if m.Data = e.Value; e.Value == nil {
		m.Header.Set("Nats-TTL", "1h") // later messages have greater sequences even after this one is gone
	}
	if e.Note != "" {
		m.Header.Set(noteHeader, e.Note)
	}
	m.Header.Set("Nats-Expected-Last-Subject-Sequence", strconv.FormatInt(e.Revision, 10))
	for try := 0; ; try++ {
		var ack struct{ Seq int64 }
		err := kv.ask(ctx, m, &ack)
		if err == nil {
			if err = kv.confirm(ctx, false); err != nil && !errors.Is(err, driver.ErrLostData) { // the message is stored
				err = fmt.Errorf("%w: the data may be lost: %v", driver.ErrUnavailable, err)
			}
			return ack.Seq, err
		}
		if errors.Is(err, cas.ErrConflict) && kv.data.Load().clustered { // a deposed leader may have answered
			return 0, fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
		}
		silent := errors.Is(err, nats.ErrNoResponders) // there is no leader, or no stream any more
		if silent && errors.Is(kv.confirm(ctx, true), driver.ErrLostData) {
			return 0, session.ErrLost
		}
		if !silent && !isCode(err, codeInProcess) || !session.Sleep(ctx, mathrand.N(time.Millisecond<<min(try, 6))) {
			return 0, err
		}
	}
}

const noteHeader = "Dlock-Note"

// Watch implements [cas.Watcher]. It asks the leader before it calls begun,
// because after the answer, the servers on the way know the subscription.
func (kv *kv) Watch(ctx context.Context, _ string, begun func(), changed func(cas.Entry)) error {
	l, err := kv.client(ctx)
	if err != nil {
		return err
	}
	sub, err := l.SubscribeSync(kv.settings.notices())
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if _, err := kv.Get(ctx, recordKey); err != nil {
		return cmp.Or(l.denied(kv.settings.notices()), err)
	}
	begun()
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return cmp.Or(l.denied(kv.settings.notices()), err)
		}
		seq, _ := strconv.ParseInt(m.Header.Get("Nats-Sequence"), 10, 64)
		changed(cas.Entry{Key: "q/" + strings.TrimPrefix(kv.settings.key(m.Subject), "n/"), Revision: seq, Note: m.Header.Get(noteHeader)})
	}
}
