package natsdriver

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/driver/session/cas"
)

// kv implements cas.Watcher, cas.Generational and cas.Unguarded on a stream, as
// one session sees it. The latest message with a subject is the value of a key;
// an empty one says that there is none. A revision is a stream sequence.
type kv struct {
	settings *settings
	subjects
	since    func(generation string) time.Time
	observes bool

	dialing sync.Mutex // held while a connection is made
	mu      sync.Mutex
	link    *link   // guarded by mu; nil while closed
	data    current // guarded by mu
}

var (
	_ cas.Watcher      = (*kv)(nil)
	_ cas.Generational = (*kv)(nil)
	_ cas.Unguarded    = (*kv)(nil)
)

// subjects is the name of a stream, with which all its subjects begin.
type subjects string

func (s subjects) queues() string       { return string(s) + ".q.>" }
func (s subjects) sessions() string     { return string(s) + ".s.>" }
func (s subjects) notices() string      { return string(s) + ".n.>" }
func (s subjects) record() string       { return string(s) + ".generation" }
func (s subjects) guard() string        { return string(s) + ".guard" } // of the first message of a batch
func (s subjects) of(key string) string { return string(s) + "." + strings.ReplaceAll(key, "/", ".") }
func (s subjects) key(subject string) string {
	return strings.ReplaceAll(strings.TrimPrefix(subject, string(s)+"."), ".", "/")
}

// client returns the connection, and makes it if there is none.
func (kv *kv) client(ctx context.Context) (*link, error) {
	kv.dialing.Lock()
	defer kv.dialing.Unlock()
	kv.mu.Lock()
	l := kv.link
	kv.mu.Unlock()
	if l != nil {
		return l, nil
	}
	l, err := dial(ctx, kv.settings)
	if err != nil {
		return nil, dialError(err)
	}
	if err := checkVersion(l.ConnectedServerVersion()); err != nil {
		l.close()
		return nil, err
	}
	kv.mu.Lock()
	defer kv.mu.Unlock()
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

// address returns the server of the connection.
func (kv *kv) address() string {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	if kv.link == nil {
		return ""
	}
	return kv.link.ConnectedAddr()
}

// api makes a request of JetStream's API for the stream.
func (kv *kv) api(ctx context.Context, what, rest string, body, answer any) error {
	m := &nats.Msg{Subject: "$JS.API." + what + "." + string(kv.subjects) + rest}
	if body != nil {
		m.Data, _ = json.Marshal(body) // never fails for the types of this package
	}
	l, err := kv.client(ctx)
	if err != nil {
		return err
	}
	reply, err := l.ask(ctx, m)
	if err != nil {
		return err
	}
	var failed struct{ Error *apiError }
	if err := json.Unmarshal(reply.Data, &failed); err != nil {
		return fmt.Errorf("%s: %w", m.Subject, err)
	}
	if err := failed.Error.mark(); err != nil {
		return err
	}
	return json.Unmarshal(reply.Data, answer)
}

// message is a message as the stream's leader returns it.
type message struct {
	Seq  int64
	Data []byte
}

// last returns the last message with a subject, if there is one. Only the
// leader of the stream answers.
func (kv *kv) last(ctx context.Context, subject string) (message, error) {
	var answer struct{ Message message }
	err := kv.api(ctx, "STREAM.MSG.GET", "", map[string]any{"last_by_subj": subject, "no_hdr": true}, &answer)
	switch {
	case isCode(err, codeNoMessage), kv.observes && isCode(err, codeNoStream):
		err = nil
	case isCode(err, codeNoStream) && kv.present().name != "":
		err = errLost
	}
	return answer.Message, err
}

// Get implements [cas.KV].
func (kv *kv) Get(ctx context.Context, key string) (cas.Entry, error) {
	m, err := kv.last(ctx, kv.of(key))
	return entry(key, m), err
}

func entry(key string, m message) cas.Entry {
	if len(m.Data) == 0 {
		m.Data = nil
	}
	return cas.Entry{Key: key, Value: m.Data, Revision: m.Seq}
}

// Scan implements [cas.KV].
func (kv *kv) Scan(ctx context.Context) (all []cas.Entry, err error) {
	for from, more := int64(1), true; more && err == nil; {
		more, err = kv.page(ctx, from, func(subject string, m message) {
			from = m.Seq + 1
			key := kv.key(subject)
			if e := entry(key, m); e.Value != nil && (strings.HasPrefix(key, "q/") || strings.HasPrefix(key, "s/")) {
				all = append(all, e)
			}
		})
	}
	return all, err
}

// page reads the next messages from a sequence on, and reports whether there are
// more.
func (kv *kv) page(ctx context.Context, from int64, found func(subject string, m message)) (more bool, err error) {
	l, err := kv.client(ctx)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, kv.settings.requestTime())
	defer cancel()
	ctx, stop := l.guard(ctx)
	defer stop()
	ask := nats.NewMsg("$JS.API.DIRECT.GET." + string(kv.subjects))
	ask.Reply = l.NewInbox()
	ask.Data = fmt.Appendf(nil, `{"seq":%d,"next_by_subj":"%s.>","batch":500}`, from, kv.subjects)
	sub, err := l.SubscribeSync(ask.Reply)
	if err == nil {
		defer func() { _ = sub.Unsubscribe() }()
		err = l.PublishMsg(ask)
	}
	for err == nil {
		var m *nats.Msg
		if m, err = sub.NextMsgWithContext(ctx); kv.observes && errors.Is(err, nats.ErrNoResponders) {
			return false, nil // there may be no stream
		} else if err != nil {
			break
		}
		switch status := m.Header.Get("Status"); {
		case status == "204": // the end
			return m.Header.Get("Nats-Num-Pending") != "0", nil
		case status == "404":
			return false, nil
		case status != "":
			return false, fmt.Errorf("%w: %s: status %s", driver.ErrUnavailable, ask.Subject, status)
		}
		seq, _ := strconv.ParseInt(m.Header.Get("Nats-Sequence"), 10, 64)
		found(m.Header.Get("Nats-Subject"), message{seq, m.Data})
	}
	return false, l.explain(err, ask)
}

// The headers of conditions and batches.
const (
	headerExpected = "Nats-Expected-Last-Subject-Sequence"
	headerOther    = "Nats-Expected-Last-Subject-Sequence-Subject"
	headerBatch    = "Nats-Batch-Id"
	headerNumber   = "Nats-Batch-Sequence"
	headerCommit   = "Nats-Batch-Commit"
	headerLife     = "Nats-TTL"
)

// removedFor is how long the stream keeps the message of a removal. The
// sequences of later ones are greater nevertheless.
const removedFor = "1h"

// Write implements [cas.KV]. A message can have one condition, so that of the
// guard is on a message without content, in one batch with that of the key.
func (kv *kv) Write(ctx context.Context, e cas.Entry, guard ...cas.Entry) (int64, error) {
	m := conditional(kv.of(e.Key), e.Revision)
	if m.Data = e.Value; e.Value == nil {
		m.Header.Set(headerLife, removedFor)
	}
	all := func() []*nats.Msg { return []*nats.Msg{m} }
	if len(guard) > 0 {
		first := conditional(kv.guard(), guard[0].Revision)
		first.Header.Set(headerOther, kv.of(guard[0].Key))
		all = func() []*nats.Msg { return batch(first, m) }
	}
	return kv.publish(ctx, all)
}

func conditional(subject string, last int64) *nats.Msg {
	m := nats.NewMsg(subject)
	m.Header.Set(headerExpected, strconv.FormatInt(last, 10))
	return m
}

// batch makes a new batch of messages, of which JetStream stores all or none.
func batch(all ...*nats.Msg) []*nats.Msg {
	id := rand.Text()
	for i, m := range all {
		m.Header.Set(headerBatch, id)
		m.Header.Set(headerNumber, strconv.Itoa(i+1))
	}
	all[len(all)-1].Header.Set(headerCommit, "1")
	return all
}

// publish sends messages until JetStream stores them or has a reason not to. It
// returns the sequence of the last one.
func (kv *kv) publish(ctx context.Context, all func() []*nats.Msg) (seq int64, err error) {
	if kv.present().lost {
		return 0, errLost
	}
	for try := 0; ; try++ {
		if seq, err = kv.publishOnce(ctx, all()); err == nil {
			return seq, kv.confirm(ctx, false)
		}
		again := isCode(err, codeInProcess, codeIncomplete, codeManyBatches)
		if errors.Is(err, nats.ErrNoResponders) { // no leader, or no stream any more
			lost := kv.confirm(ctx, true)
			if again = !errors.Is(lost, driver.ErrLostData); !again {
				return 0, lost
			}
		}
		if !again || !session.Sleep(ctx, mathrand.N(time.Millisecond<<min(try, 6))) {
			return 0, err
		}
	}
}

func (kv *kv) publishOnce(ctx context.Context, all []*nats.Msg) (int64, error) {
	l, err := kv.client(ctx)
	if err != nil {
		return 0, err
	}
	reply, err := l.ask(ctx, all...)
	if err != nil {
		return 0, err
	}
	var ack struct {
		Seq   int64
		Error *apiError
	}
	if err := json.Unmarshal(reply.Data, &ack); err != nil {
		return 0, fmt.Errorf("%s: %w", all[0].Subject, err)
	}
	if denied := l.denied(all[0].Subject); denied != nil && ack.Error != nil { // the batch is incomplete
		return 0, session.Refused(denied)
	}
	return ack.Seq, ack.Error.mark()
}

// Watch implements [cas.Watcher]. It asks the leader before it calls begun,
// because the servers on the way then know of the subscription.
func (kv *kv) Watch(ctx context.Context, _ string, begun func(), changed func(cas.Entry)) error {
	l, err := kv.client(ctx)
	if err != nil {
		return err
	}
	ctx, stop := l.guard(ctx)
	defer stop()
	sub, err := l.SubscribeSync(kv.notices())
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	asking, cancel := context.WithTimeout(ctx, kv.settings.requestTime())
	defer cancel()
	if _, err := kv.last(asking, kv.record()); err != nil {
		return err
	}
	begun()
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return err
		}
		seq, _ := strconv.ParseInt(m.Header.Get("Nats-Sequence"), 10, 64)
		changed(entry("q/"+strings.TrimPrefix(kv.key(m.Subject), "n/"), message{seq, m.Data}))
	}
}
