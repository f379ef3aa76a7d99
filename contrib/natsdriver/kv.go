package natsdriver

import (
	"context"
	"crypto/rand"
	"encoding/json"
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

// kv implements cas.Watcher and cas.Generational on a stream, as one session
// sees it. The latest message with a subject is the value of a key; an empty one
// says that there is none. A revision is a stream sequence plus the base of the
// generation.
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

func (s subjects) all() string          { return string(s) + ".>" }
func (s subjects) queues() string       { return string(s) + ".q.>" }
func (s subjects) sessions() string     { return string(s) + ".s.>" }
func (s subjects) generation() string   { return string(s) + ".generation" }
func (s subjects) guard() string        { return string(s) + ".guard" } // of the first message of a batch
func (s subjects) notices() string      { return string(s) + ".n.>" }
func (s subjects) of(key string) string { return string(s) + "." + strings.ReplaceAll(key, "/", ".") }

// key returns the key of a subject, also that of a notice.
func (s subjects) key(subject string) string {
	key := strings.ReplaceAll(strings.TrimPrefix(subject, string(s)+"."), ".", "/")
	if queue, ok := strings.CutPrefix(key, "n/"); ok {
		return "q/" + queue
	}
	return key
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
	if err == nil {
		err = checkVersion(l.nc.ConnectedServerVersion())
	}
	if err != nil {
		if l != nil {
			l.close()
			return nil, err
		}
		return nil, dialError(err)
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
	return kv.link.nc.ConnectedAddr()
}

func (kv *kv) ask(ctx context.Context, all ...*nats.Msg) (*nats.Msg, error) {
	l, err := kv.client(ctx)
	if err != nil {
		return nil, err
	}
	return l.ask(ctx, all...)
}

// api makes a request of JetStream's API for the stream.
func (kv *kv) api(ctx context.Context, what, rest string, body, answer any) error {
	m := &nats.Msg{Subject: "$JS.API." + what + "." + string(kv.subjects) + rest}
	if body != nil {
		m.Data, _ = json.Marshal(body) // never fails for the types of this package
	}
	reply, err := kv.ask(ctx, m)
	if err != nil {
		return err
	}
	var failed struct{ Error *apiError }
	if err := json.Unmarshal(reply.Data, &failed); err != nil {
		return fmt.Errorf("%s: %w", m.Subject, err)
	}
	if failed.Error != nil {
		return failed.Error.mark()
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
	if isCode(err, codeNoMessage) || kv.observes && isCode(err, codeNoStream) {
		err = nil
	}
	return answer.Message, err
}

// Get implements [cas.KV].
func (kv *kv) Get(ctx context.Context, key string) (cas.Entry, error) {
	m, err := kv.last(ctx, kv.of(key))
	return kv.entry(key, m.Seq, m.Data), err
}

func (kv *kv) entry(key string, seq int64, data []byte) cas.Entry {
	e := cas.Entry{Key: key}
	if seq > 0 {
		e.Revision = seq + kv.base()
	}
	if len(data) > 0 {
		e.Value = data
	}
	return e
}

// pageSize is how many messages Scan asks for at once.
const pageSize = 500

// Scan implements [cas.KV].
func (kv *kv) Scan(ctx context.Context) (all []cas.Entry, err error) {
	for from, more := int64(1), true; more && err == nil; {
		from, more, err = kv.page(ctx, from, func(subject string, m message) {
			key := kv.key(subject)
			if e := kv.entry(key, m.Seq, m.Data); e.Value != nil && (strings.HasPrefix(key, "q/") || strings.HasPrefix(key, "s/")) {
				all = append(all, e)
			}
		})
	}
	return all, err
}

// page reads messages from a sequence on, and returns the next sequence and
// whether there are more.
func (kv *kv) page(ctx context.Context, from int64, found func(subject string, m message)) (next int64, more bool, err error) {
	l, err := kv.client(ctx)
	if err != nil {
		return 0, false, err
	}
	ctx, cancel := context.WithTimeout(ctx, kv.settings.requestTime())
	defer cancel()
	request := "$JS.API.DIRECT.GET." + string(kv.subjects)
	ctx, stop := l.guard(ctx, request)
	defer stop()
	inbox := l.nc.NewInbox()
	sub, err := l.nc.SubscribeSync(inbox)
	if err != nil {
		return 0, false, requestError(err)
	}
	defer func() { _ = sub.Unsubscribe() }()
	body := fmt.Appendf(nil, `{"seq":%d,"next_by_subj":%q,"batch":%d}`, from, kv.all(), pageSize)
	if err := l.nc.PublishRequest(request, inbox, body); err != nil {
		return 0, false, requestError(err)
	}
	for next = from; ; {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return 0, false, requestError(err)
		}
		switch status := m.Header.Get("Status"); {
		case status == "204": // the end
			pending, _ := strconv.Atoi(m.Header.Get("Nats-Num-Pending"))
			return next, pending > 0, nil
		case status == "404":
			return next, false, nil
		case status == "503" && kv.observes:
			return next, false, nil // there may be no stream
		case status != "":
			return 0, false, fmt.Errorf("%w: %s: status %s %s", driver.ErrUnavailable, request, status, m.Header.Get("Description"))
		}
		seq, _ := strconv.ParseInt(m.Header.Get("Nats-Sequence"), 10, 64)
		found(m.Header.Get("Nats-Subject"), message{seq, m.Data})
		next = seq + 1
	}
}

const (
	headerExpected        = "Nats-Expected-Last-Subject-Sequence"
	headerExpectedSubject = "Nats-Expected-Last-Subject-Sequence-Subject"
	headerBatch           = "Nats-Batch-Id"
	headerNumber          = "Nats-Batch-Sequence"
	headerCommit          = "Nats-Batch-Commit"
	headerLife            = "Nats-TTL"
)

// removedFor is how long the stream keeps the message of a removal. After that,
// the sequences of later ones are greater nevertheless.
const removedFor = "1h"

// Write implements [cas.KV]. A message can have one condition, so that of the
// guard is on a message without content, in one batch with that of the key.
func (kv *kv) Write(ctx context.Context, e cas.Entry, guard ...cas.Entry) (int64, error) {
	m := nats.NewMsg(kv.of(e.Key))
	m.Data = e.Value
	m.Header.Set(headerExpected, kv.seq(e))
	if e.Value == nil {
		m.Header.Set(headerLife, removedFor)
	}
	for try := 0; ; try++ {
		all := []*nats.Msg{m}
		if len(guard) > 0 {
			all = kv.batch(m, guard[0])
		}
		seq, err := kv.publish(ctx, all)
		// A write of the same session is under way, or its server has too many.
		if !isCode(err, codeInProcess) && !isCode(err, codeIncomplete) && !isCode(err, codeManyBatches) {
			return seq, err
		}
		if !session.Sleep(ctx, mathrand.N(time.Millisecond<<min(try, 6))) {
			return 0, err
		}
	}
}

func (kv *kv) seq(e cas.Entry) string {
	if e.Revision == 0 {
		return "0"
	}
	return strconv.FormatInt(e.Revision-kv.base(), 10)
}

func (kv *kv) batch(m *nats.Msg, guard cas.Entry) []*nats.Msg {
	first, id := nats.NewMsg(kv.guard()), rand.Text()
	first.Header.Set(headerExpected, kv.seq(guard))
	first.Header.Set(headerExpectedSubject, kv.of(guard.Key))
	for i, m := range []*nats.Msg{first, m} {
		m.Header.Set(headerBatch, id)
		m.Header.Set(headerNumber, strconv.Itoa(i+1))
	}
	m.Header.Set(headerCommit, "1")
	return []*nats.Msg{first, m}
}

// publish sends messages, and returns the revision of the last one.
func (kv *kv) publish(ctx context.Context, all []*nats.Msg) (revision int64, err error) {
	reply, err := kv.ask(ctx, all...)
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
	if err := ack.Error.mark(); err != nil {
		return 0, err
	}
	return ack.Seq + kv.base(), kv.confirm(ctx)
}

// Watch implements [cas.Watcher]. It asks the leader before it calls begun,
// because the servers on the way then know of the subscription.
func (kv *kv) Watch(ctx context.Context, _ string, begun func(), changed func(cas.Entry)) error {
	l, err := kv.client(ctx)
	if err != nil {
		return err
	}
	if err := l.wait(ctx); err != nil {
		return err
	}
	ctx, stop := l.guard(ctx, kv.notices())
	defer stop()
	sub, err := l.nc.SubscribeSync(kv.notices())
	if err != nil {
		return err
	}
	defer func() { _ = sub.Unsubscribe() }()
	if _, err := kv.last(ctx, kv.generation()); err != nil {
		return err
	}
	begun()
	for {
		m, err := sub.NextMsgWithContext(ctx)
		if err != nil {
			return err
		}
		seq, _ := strconv.ParseInt(m.Header.Get("Nats-Sequence"), 10, 64)
		changed(kv.entry(kv.key(m.Subject), seq, m.Data))
	}
}
