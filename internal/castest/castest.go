// Package castest runs the conformance kit on a store for package cas. It
// injects faults between that package and the store, so that it suits any store.
package castest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/driver/session/cas"
)

const timeout = time.Second

// Config returns the configuration of the kit. The function open returns a
// function that connects to a new and empty store.
func Config(open func(t *testing.T) (connect func() cas.KV)) dlocktest.Config {
	var links sync.Map // of sessions
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
	lose := func(arrives bool) func(*testing.T, driver.Session, faults.Op) {
		return func(_ *testing.T, s driver.Session, op faults.Op) {
			of(s).next(op, func(send func()) {
				if arrives {
					send()
				}
			})
		}
	}
	return dlocktest.Config{
		SessionTimeout: timeout, Parallel: 4, Complete: true,
		Abilities: []dlocktest.Ability{dlocktest.AbilityAhead, dlocktest.AbilityInspect},
		New:       opened, NewNearRollOver: opened,
		Drop: func(t *testing.T, s driver.Session) {
			kv, id := of(s).admin, driver.Inspect(s).Describe().ID
			edit(t, kv, "s/"+id, remove)
			all, err := kv.Scan(t.Context(), "q/")
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range all {
				edit(t, kv, e.Key, nodes(func(n []node) []node {
					return slices.DeleteFunc(n, func(n node) bool { return n.Owner == id })
				}))
			}
		},
		CutOff:         func(_ *testing.T, s driver.Session) func() { return of(s).cutOff() },
		Reset:          func(_ *testing.T, s driver.Session) { of(s).cutOff()() },
		SilenceNotices: func(_ *testing.T, s driver.Session) { of(s).set(func(l *link) { l.silenced = l.watches }) },
		LoseRequest:    lose(false),
		LoseReply:      lose(true),
		HoldRequest: func(_ *testing.T, s driver.Session, op faults.Op) (arrive func()) {
			held := make(chan func(), 1)
			of(s).next(op, func(send func()) { held <- send })
			return func() {
				select {
				case send := <-held:
					send()
				default:
				}
			}
		},
		DelayReplies: func(_ *testing.T, s driver.Session, d time.Duration) { of(s).set(func(l *link) { l.delay = d }) },
		Pause: func(t *testing.T, s driver.Session, d time.Duration) {
			dlocktest.SkewLease(s.(*session.Session).Lease(), d)
		},
		RemoveQueue: func(t *testing.T, c driver.Connector, queue string) {
			edit(t, c.(*connector).admin, "q/"+queue, remove)
		},
		RemoveNode: func(t *testing.T, c driver.Connector, queue, name string) {
			edit(t, c.(*connector).admin, "q/"+queue, nodes(func(n []node) []node {
				return slices.DeleteFunc(n, func(n node) bool { return n.Name == name })
			}))
		},
		PutNode: func(t *testing.T, c driver.Connector, queue, name string, data []byte) {
			edit(t, c.(*connector).admin, "q/"+queue, nodes(func(n []node) []node { return append(n, node{Name: name, Data: data}) }))
		},
	}
}

// node and value are what another program has to know of the layout.
type (
	node struct {
		Name, Owner   string
		Token, Number int64
		Data          []byte
	}
	value struct {
		Nodes    []node
		Last     int64
		Released string
	}
)

func remove(cas.Entry) []byte { return nil }

// nodes returns a function that changes the nodes in the value of an entry.
func nodes(change func([]node) []node) func(cas.Entry) []byte {
	return func(e cas.Entry) []byte {
		var v value
		_ = json.Unmarshal(e.Value, &v)
		for i, n := range v.Nodes {
			if n.Owner != "" && n.Token == 0 {
				v.Nodes[i].Token = max(e.Revision, v.Last+1)
				v.Nodes[i].Name = driver.FormatName(n.Name, v.Nodes[i].Token)
			}
			v.Last = max(v.Last, v.Nodes[i].Token)
		}
		v.Nodes = change(v.Nodes)
		b, _ := json.Marshal(v)
		return b
	}
}

// edit changes an entry as an operator would.
func edit(t *testing.T, kv cas.KV, key string, f func(cas.Entry) []byte) {
	for t.Context().Err() == nil {
		e, err := kv.Get(t.Context(), key)
		if err == nil && e.Revision == 0 && f(e) == nil {
			return
		}
		if e.Value = f(e); err == nil {
			_, err = kv.Write(t.Context(), e)
		}
		if err == nil {
			return
		}
	}
	t.Fatal(context.Cause(t.Context()))
}

type connector struct {
	connect func() cas.KV
	links   *sync.Map
	admin   cas.KV
}

func (c *connector) Connect(ctx context.Context) (driver.Session, error) {
	l := &link{KV: c.connect(), admin: c.admin, cut: newCut()}
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

// link is a session's connection.
type link struct {
	cas.KV
	admin cas.KV
	sends sync.WaitGroup

	mu       sync.Mutex
	cut      cut
	delay    time.Duration
	op       faults.Op
	fault    func(send func()) // of the next request for op; may be nil
	watches  int               // so far
	silenced int               // watches that are silent
}

// Close waits for requests that were given up, because they would connect again.
func (l *link) Close() error {
	l.sends.Wait()
	return l.KV.Close()
}

func (l *link) set(f func(*link)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l)
}

func (l *link) next(op faults.Op, fault func(send func())) {
	l.set(func(l *link) { l.op, l.fault = op, fault })
}

func (l *link) cutOff() (heal func()) {
	l.set(func(l *link) { close(l.cut.start) })
	return sync.OnceFunc(func() {
		l.set(func(l *link) {
			close(l.cut.healed)
			l.cut = newCut()
		})
	})
}

// cut is an outage of a link, which may lie in the future.
type cut struct{ start, healed chan struct{} }

func newCut() cut { return cut{make(chan struct{}), make(chan struct{})} }

func (c cut) began() bool {
	select {
	case <-c.start:
		return true
	default:
		return false
	}
}

// request carries out a request for op, with the faults of the link.
func request[T any](ctx context.Context, l *link, op func() faults.Op, send func(context.Context, cas.KV) (T, error)) (v T, err error) {
	l.mu.Lock()
	cut, delay, fault := l.cut, l.delay, l.fault
	l.mu.Unlock()
	if fault != nil && op() == l.op {
		l.set(func(l *link) { l.fault = nil })
		fault(func() { _, _ = send(context.Background(), l.admin) }) // the session's connection may be closed by then
		return v, fmt.Errorf("%w: connection reset", driver.ErrUnavailable)
	}
	answered := make(chan func() (T, error), 1)
	if !cut.began() {
		l.sends.Add(1)
		go func() {
			v, err := send(ctx, l.KV)
			l.sends.Done()
			time.Sleep(delay)
			answered <- func() (T, error) { return v, err }
		}()
	}
	healed := cut.healed
	if delay > 0 {
		healed = nil // what is on its way arrives
	}
	select {
	case answer := <-answered:
		if v, err := answer(); delay > 0 || !cut.began() {
			return v, err
		}
	case <-ctx.Done():
	case <-healed:
	}
	select {
	case <-ctx.Done():
	case <-cut.healed:
	}
	return v, fmt.Errorf("%w: connection reset", driver.ErrUnavailable)
}

func (l *link) Get(ctx context.Context, key string) (cas.Entry, error) {
	op := func() faults.Op {
		if strings.HasPrefix(key, "q/") {
			return faults.OpList
		}
		return faults.OpRead
	}
	return request(ctx, l, op, func(ctx context.Context, kv cas.KV) (cas.Entry, error) { return kv.Get(ctx, key) })
}

func (l *link) Scan(ctx context.Context, prefix string) ([]cas.Entry, error) {
	return request(ctx, l, func() faults.Op { return faults.OpWalk }, func(ctx context.Context, kv cas.KV) ([]cas.Entry, error) { return kv.Scan(ctx, prefix) })
}

func (l *link) Write(ctx context.Context, e cas.Entry, others ...cas.Entry) (revision int64, err error) {
	return request(ctx, l, func() faults.Op { return l.kind(e) }, func(ctx context.Context, kv cas.KV) (int64, error) { return kv.Write(ctx, e, others...) })
}

// kind tells what a write is for, from the number of nodes before and after.
func (l *link) kind(e cas.Entry) faults.Op {
	switch {
	case strings.HasPrefix(e.Key, "v/"):
		return faults.OpSetValue
	case !strings.HasPrefix(e.Key, "q/"):
		return faults.OpHeartbeat
	}
	was, _ := l.admin.Get(context.Background(), e.Key)
	var before, after value
	_, _ = json.Unmarshal(was.Value, &before), json.Unmarshal(e.Value, &after)
	return []faults.Op{faults.OpDelete, faults.OpReplace, faults.OpCreate}[1+cmp.Compare(len(after.Nodes), len(before.Nodes))]
}

// watcher is a link to a store with notices.
type watcher struct {
	*link
	of cas.Watcher
}

func (w watcher) Watch(ctx context.Context, prefix string, changed func(string, int64)) (<-chan struct{}, error) {
	w.mu.Lock()
	w.watches++
	number, cut := w.watches, w.cut
	w.mu.Unlock()
	lost := make(chan struct{})
	_, err := request(ctx, w.link, func() faults.Op { return faults.OpWatch }, func(context.Context, cas.KV) (struct{}, error) {
		broken, err := w.of.Watch(ctx, prefix, func(key string, revision int64) {
			w.mu.Lock()
			silent := number <= w.silenced || cut.began()
			w.mu.Unlock()
			if !silent {
				changed(key, revision)
			}
		})
		if err == nil {
			go func() {
				defer close(lost)
				select {
				case <-broken:
				case <-cut.healed:
				case <-ctx.Done():
				}
			}()
		}
		return struct{}{}, err
	})
	return lost, err
}
