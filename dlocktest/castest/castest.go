package castest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/driver/session/cas"
)

const timeout = time.Second

// Config returns the configuration of the conformance kit for a cas.KV. The
// function open returns a function that connects to a new and empty store.
func Config(open func(t *testing.T) (connect func() cas.KV)) dlocktest.Config {
	var links sync.Map // maps each session to its *link
	of := func(s driver.Session) *link {
		l, _ := links.Load(s)
		return l.(*link)
	}
	opened := func(t *testing.T) driver.Connector {
		c := &connector{connect: open(t), links: &links}
		c.admin = c.connect()
		t.Cleanup(func() { _ = c.admin.Close() })
		return c
	}
	return dlocktest.Config{
		SessionTimeout: timeout, Parallel: 4, Complete: true,
		Abilities: []dlocktest.Ability{dlocktest.AbilityAhead, dlocktest.AbilityInspect},
		New:       opened, NewNearRollOver: opened,
		Drop: func(t *testing.T, s driver.Session) {
			kv, id := of(s).admin, driver.Inspect(s).Describe().ID
			edit(t, kv, "s/"+id, func([]node) []node { return nil })
			all, err := kv.Scan(t.Context())
			for _, e := range all {
				if strings.HasPrefix(e.Key, "q/") {
					edit(t, kv, e.Key, func(n []node) []node {
						return slices.DeleteFunc(n, func(n node) bool { return n.Owner == id })
					})
				}
			}
			if err != nil {
				t.Fatal(err)
			}
		},
		CutOff: func(_ *testing.T, s driver.Session) (heal func()) {
			healed := make(chan struct{})
			of(s).set(func(l *link) { l.healed = healed })
			return sync.OnceFunc(func() { close(healed) })
		},
		Reset:          func(_ *testing.T, s driver.Session) { of(s).set(func(l *link) { l.reset() }) },
		SilenceNotices: func(_ *testing.T, s driver.Session) { of(s).set(func(l *link) { l.silent.Store(true) }) },
		LoseRequest:    func(_ *testing.T, s driver.Session, op faults.Op) { of(s).next(op, func(func()) {}) },
		LoseReply:      func(_ *testing.T, s driver.Session, op faults.Op) { of(s).next(op, func(send func()) { send() }) },
		HoldRequest: func(_ *testing.T, s driver.Session, op faults.Op) (arrive func()) {
			held := make(chan func(), 1)
			held <- func() {}
			of(s).next(op, func(send func()) { <-held; held <- send })
			return func() { (<-held)() }
		},
		DelayReplies: func(_ *testing.T, s driver.Session, d time.Duration) { of(s).set(func(l *link) { l.delay = d }) },
		Pause: func(t *testing.T, s driver.Session, d time.Duration) {
			dlocktest.SkewLease(s.(*session.Session).Lease(), d)
		},
		RemoveQueue: func(t *testing.T, c driver.Connector, queue string) {
			edit(t, c.(*connector).admin, "q/"+queue, func([]node) []node { return nil })
		},
		RemoveNode: func(t *testing.T, c driver.Connector, queue, name string) {
			edit(t, c.(*connector).admin, "q/"+queue, func(n []node) []node {
				return slices.DeleteFunc(n, func(n node) bool { return n.Name == name })
			})
		},
		PutNode: func(t *testing.T, c driver.Connector, queue, name string, data []byte) {
			edit(t, c.(*connector).admin, "q/"+queue, func(n []node) []node { return append(n, node{Name: name, Data: data}) })
		},
	}
}

type node struct {
	Name          string
	Token, Number int64
	Owner         string `json:",omitempty"`
	Data          []byte
}

func nodes(e cas.Entry) (nodes []node, value map[string]json.RawMessage) {
	value = make(map[string]json.RawMessage)
	base := int64(0)
	_, _, _ = json.Unmarshal(e.Value, &value), json.Unmarshal(value["Nodes"], &nodes), json.Unmarshal(value["Base"], &base)
	for i, n := range nodes {
		if n.Owner != "" && n.Token == 0 {
			prefix, _, _ := driver.ParseName(n.Name)
			nodes[i].Token, nodes[i].Name = e.Revision+base, driver.FormatName(prefix, e.Revision+base)
		}
	}
	return nodes, value
}

// edit replaces a queue's nodes by the result of change, as an operator would,
// and removes the key if the result is nil.
func edit(t *testing.T, kv cas.KV, key string, change func([]node) []node) {
	for t.Context().Err() == nil {
		e, err := kv.Get(t.Context(), key)
		if err == nil {
			now, value := nodes(e)
			now, e.Value = change(now), nil
			if now != nil {
				value["Nodes"], _ = json.Marshal(now)
				e.Value, _ = json.Marshal(value)
			}
			_, err = kv.Write(t.Context(), e)
		}
		if err == nil {
			return
		}
	}
	t.Fatal(context.Cause(t.Context()))
}

var whole = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

type connector struct {
	connect func() cas.KV
	links   *sync.Map
	admin   cas.KV
}

func (c *connector) Connect(ctx context.Context) (driver.Session, error) {
	l := &link{KV: c.connect(), admin: c.admin, healed: whole, reset: func() {}, silent: new(atomic.Bool)}
	var kv cas.KV = l
	if w, ok := l.KV.(cas.Watcher); ok {
		kv = watcher{l, w}
	}
	s, err := cas.Connect(ctx, kv, session.Config{Name: "cas", Timeout: timeout, Server: func() string { return "store" }})
	if err != nil {
		return nil, err
	}
	c.links.Store(driver.Session(s), l)
	return s, nil
}

type link struct {
	cas.KV
	admin cas.KV

	mu     sync.Mutex
	healed <-chan struct{} // closed unless the link is cut
	delay  time.Duration   // of replies
	op     faults.Op
	fault  func(send func()) // handles the next op request; may be nil
	reset  func()            // ends the latest watch
	silent *atomic.Bool      // whether the latest watch is silenced
}

func (l *link) set(f func(*link)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l)
}

func (l *link) next(op faults.Op, fault func(send func())) {
	l.set(func(l *link) { l.op, l.fault = op, fault })
}

// travel waits for d or, if d is zero, until the link is no longer cut.
func (l *link) travel(ctx context.Context, d time.Duration) error {
	l.mu.Lock()
	there := l.healed
	l.mu.Unlock()
	if d > 0 {
		delayed, cancel := context.WithTimeout(context.Background(), d)
		defer cancel()
		there = delayed.Done()
	}
	select {
	case <-there:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// request sends a request over the link. A fault for its operation gets it
// instead.
func request[T any](ctx context.Context, l *link, is func(faults.Op) bool, send func(context.Context, cas.KV) (T, error)) (v T, err error) {
	l.mu.Lock()
	op, fault, delay := l.op, l.fault, l.delay
	l.mu.Unlock()
	if fault != nil && is(op) {
		l.next(0, nil)
		fault(func() { _, _ = send(context.Background(), l.admin) }) // the session's connection may be closed by then
		return v, fmt.Errorf("%w: connection reset", driver.ErrUnavailable)
	}
	if err := l.travel(ctx, 0); err != nil {
		return v, err
	}
	v, err = send(ctx, l.KV)
	return v, cmp.Or(l.travel(ctx, delay), err)
}

func (l *link) Get(ctx context.Context, key string) (cas.Entry, error) {
	is := func(op faults.Op) bool { return op == faults.OpList && strings.HasPrefix(key, "q/") }
	return request(ctx, l, is, func(ctx context.Context, kv cas.KV) (cas.Entry, error) { return kv.Get(ctx, key) })
}

func (l *link) Scan(ctx context.Context) ([]cas.Entry, error) {
	is := func(faults.Op) bool { return false }
	return request(ctx, l, is, func(ctx context.Context, kv cas.KV) ([]cas.Entry, error) { return kv.Scan(ctx) })
}

func (l *link) Write(ctx context.Context, e cas.Entry, guard ...cas.Entry) (revision int64, err error) {
	return request(ctx, l, func(op faults.Op) bool { return l.changes(e, op) },
		func(ctx context.Context, kv cas.KV) (int64, error) { return kv.Write(ctx, e, guard...) })
}

// Unguarded implements cas.Unguarded.
func (l *link) Unguarded() bool {
	u, ok := l.KV.(cas.Unguarded)
	return ok && u.Unguarded()
}

// Generation implements cas.Generational.
func (l *link) Generation(ctx context.Context) (cas.Generation, error) {
	g, ok := l.KV.(cas.Generational)
	if !ok {
		return cas.Generation{}, nil
	}
	return request(ctx, l, func(faults.Op) bool { return false }, func(ctx context.Context, _ cas.KV) (cas.Generation, error) { return g.Generation(ctx) })
}

// changes guesses whether a write carries out op, from the numbers of nodes
// before and after it.
func (l *link) changes(e cas.Entry, op faults.Op) bool {
	was, _ := l.admin.Get(context.Background(), e.Key)
	before, _ := nodes(was)
	after, _ := nodes(e)
	kinds := [][]faults.Op{{faults.OpDelete}, {faults.OpReplace, faults.OpSetValue}, {faults.OpCreate}}
	return strings.HasPrefix(e.Key, "q/") && slices.Contains(kinds[1+cmp.Compare(len(after), len(before))], op)
}

type watcher struct {
	*link
	of cas.Watcher
}

func (w watcher) Watch(ctx context.Context, prefix string, begun func(), changed func(cas.Entry)) error {
	silent := new(atomic.Bool)
	ctx, reset := context.WithCancel(ctx)
	defer reset()
	w.set(func(l *link) { l.silent, l.reset = silent, reset })
	if err := w.travel(ctx, 0); err != nil {
		return err
	}
	return w.of.Watch(ctx, prefix, begun, func(e cas.Entry) {
		if w.travel(ctx, 0) == nil && !silent.Load() {
			changed(e)
		}
	})
}
