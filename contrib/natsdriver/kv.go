package natsdriver

import (
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

// kv is a stream as one session sees it. The latest message with a subject is
// the value of a key; an empty one says that there is none. A revision is a
// stream sequence.
type kv struct {
	settings *settings
	since    func(generation string) time.Time // see connector
	observes bool
	data     atomic.Pointer[current]

	mu   sync.Mutex // also held while a connection is made
	link *link      // guarded by mu; nil while closed
}

var (
	_ cas.Watcher      = (*kv)(nil)
	_ cas.Generational = (*kv)(nil)
	_ cas.Unguarded    = (*kv)(nil)
)

// Unguarded implements [cas.Unguarded]. A batch of two messages, each with a
// condition, would do for a guard. But a server with a stream of one replica
// writes a batch to files of its own and syncs them, which takes ten times as
// long as a message, and in a cluster, batches of one session would conflict.
func (kv *kv) Unguarded() bool { return true }

// subject returns the subject of a key. The prefix n is for notices.
func (s *settings) subject(key string) string {
	return s.stream + "." + strings.ReplaceAll(key, "/", ".")
}

func (s *settings) key(subject string) string {
	return strings.ReplaceAll(strings.TrimPrefix(subject, s.stream+"."), ".", "/")
}

// client returns the connection, and makes it if there is none.
func (kv *kv) client(ctx context.Context) (*link, error) {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	if kv.link != nil && !kv.link.IsClosed() {
		return kv.link, nil
	}
	l, err := dial(ctx, kv.settings)
	if err != nil {
		return nil, dialError(err)
	}
	if err := checkVersion(l.ConnectedServerVersion()); err != nil {
		l.close()
		return nil, err
	}
	kv.link = l
	return l, nil
}

// Close implements [cas.KV].
func (kv *kv) Close() error {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	if kv.link != nil {
		kv.link.close()
		kv.link = nil
	}
	return nil
}

// ask makes a request. It has a time limit even if that of the engine has none.
// It repeats the request if a server has answered that knows no leader, which
// beats the leader's answer.
func (kv *kv) ask(ctx context.Context, m *nats.Msg, answer any) error {
	l, err := kv.client(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, l.limit)
	defer cancel()
	for {
		err := l.ask(ctx, m, answer)
		l.judge(err)
		if !isCode(err, codeNoMeta) || !session.Sleep(ctx, 20*time.Millisecond) {
			return err
		}
	}
}

// api makes a request of JetStream's API for the stream.
func (kv *kv) api(ctx context.Context, what, rest string, body, answer any) error {
	m := nats.NewMsg("$JS.API." + what + "." + kv.settings.stream + rest)
	if body != nil {
		m.Data = []byte(text(body))
	}
	return kv.ask(ctx, m, answer)
}

// text returns v, which is of a type that JSON has, as JSON.
func text(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// message is a message as the stream's leader returns it.
type message struct {
	Subject string
	Seq     int64
	Data    []byte
}

// read reads a message, if there is one. Whoever believes to lead the stream
// answers, even if it is deposed, and then the message may be missing or old.
func (kv *kv) read(ctx context.Context, which map[string]any) (message, error) {
	var answer struct{ Message message }
	which["no_hdr"] = true
	err := kv.api(ctx, "STREAM.MSG.GET", "", which, &answer)
	switch {
	case isCode(err, codeNoMessage), kv.observes && isCode(err, codeNoStream):
		err = nil
	case isCode(err, codeNoStream) && kv.data.Load().name != "":
		err = session.ErrLost
	}
	if m := &answer.Message; len(m.Data) == 0 {
		m.Data = nil
	}
	return answer.Message, err
}

func (kv *kv) last(ctx context.Context, subject string) (message, error) {
	return kv.read(ctx, map[string]any{"last_by_subj": subject})
}

// Get implements [cas.KV].
func (kv *kv) Get(ctx context.Context, key string) (cas.Entry, error) {
	m, err := kv.last(ctx, kv.settings.subject(key))
	return cas.Entry{Key: key, Value: m.Data, Revision: m.Seq}, err
}

// Scan implements [cas.KV]. If its time is over, it has read what has not changed
// for longest.
func (kv *kv) Scan(ctx context.Context) (all []cas.Entry, err error) {
	for from := int64(1); ; {
		m, err := kv.read(ctx, map[string]any{"seq": from, "next_by_subj": kv.settings.stream + ".>"})
		if err != nil || m.Seq == 0 {
			return all, err
		}
		if m.Data != nil && m.Subject != kv.settings.record() {
			all = append(all, cas.Entry{Key: kv.settings.key(m.Subject), Value: m.Data, Revision: m.Seq})
		}
		from = m.Seq + 1
	}
}

// removedFor is how long the stream keeps the message of a removal. The
// sequences of later ones are greater nevertheless.
const removedFor = "1h"

// Write implements [cas.KV].
func (kv *kv) Write(ctx context.Context, e cas.Entry, _ ...cas.Entry) (int64, error) {
	m := nats.NewMsg(kv.settings.subject(e.Key))
	if m.Data = e.Value; e.Value == nil {
		m.Header.Set("Nats-TTL", removedFor)
	}
	if e.Note != "" {
		m.Header.Set(noteHeader, e.Note)
	}
	return kv.publish(ctx, m, e.Revision)
}

// publish sends a message, on the condition that the last one with its subject has
// the sequence. It repeats the message if no server took it, or if another write
// of the subject was not yet applied.
func (kv *kv) publish(ctx context.Context, m *nats.Msg, last int64) (int64, error) {
	if kv.data.Load().lost {
		return 0, session.ErrLost
	}
	m.Header.Set("Nats-Expected-Last-Subject-Sequence", strconv.FormatInt(last, 10))
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
		again := isCode(err, codeInProcess)
		if errors.Is(err, nats.ErrNoResponders) { // there is no leader, or no stream any more
			lost := kv.confirm(ctx, true)
			if again = true; errors.Is(lost, driver.ErrLostData) {
				return 0, lost
			}
		}
		if !again || !session.Sleep(ctx, mathrand.N(time.Millisecond<<min(try, 6))) {
			return 0, err
		}
	}
}

const noteHeader = "Dlock-Note"

// Watch implements [cas.Watcher]. It asks the leader before it calls begun,
// because the servers on the way then know of the subscription.
func (kv *kv) Watch(ctx context.Context, _ string, begun func(), changed func(cas.Entry)) error {
	l, err := kv.client(ctx)
	if err != nil {
		return err
	}
	ctx, stop := l.guard(ctx)
	defer stop()
	sub, err := l.SubscribeSync(kv.settings.notices())
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if _, err := kv.last(ctx, kv.settings.record()); err != nil {
		return err
	}
	begun()
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return err
		}
		seq, _ := strconv.ParseInt(m.Header.Get("Nats-Sequence"), 10, 64)
		changed(cas.Entry{Key: "q/" + strings.TrimPrefix(kv.settings.key(m.Subject), "n/"), Revision: seq, Note: m.Header.Get(noteHeader)})
	}
}
