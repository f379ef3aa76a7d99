package dlocktest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
)

// base is a correct session that supports everything.
type base interface {
	driver.Session
	driver.Inspector
}

// A faulty session behaves correctly until a [plant] adds a handler or replaces
// a function.
type faulty struct {
	base
	store    *memdriver.Store
	handlers map[faults.Op]handler

	// Unless nil, these replace the methods of the same names.
	err       func() error
	done      <-chan struct{}
	describe  func(*driver.SessionInfo)
	heartbeat func(f func(left, term time.Duration)) bool
	check     func(ctx context.Context, st store) ([]driver.Finding, error)
	bare      bool // whether to hide the methods of driver.Inspector

	// These are called by Connect, and by the Config hooks that inject faults.
	connected func(ctx context.Context)
	cut       func(now bool) // now is false when the cut heals
	reset     func()
	silenced  func() // notices are lost from now on
	expiring  func() // the store is about to end the session
	paused    func(d time.Duration)
	losing    func(grace *time.Duration) (survives bool) // the store is about to lose its data
	restored  func()                                     // the store has lost its data
	// lose loses a request or a reply. If done is false, the store does so.
	lose func(op faults.Op, committed bool) (done bool)
	// hold delays a request. If hold is nil, the store delays it.
	hold func() (arrive func())
}

// A plant makes a correct session faulty.
type plant func(s *faulty)

func newFaulty(s base, st *memdriver.Store) *faulty {
	return &faulty{
		base: s, store: st, handlers: make(map[faults.Op]handler),
		connected: func(context.Context) {},
		cut:       func(bool) {},
		reset:     func() {},
		silenced:  func() {},
		expiring:  func() {},
		paused:    func(time.Duration) {},
		losing:    func(*time.Duration) bool { return false },
		restored:  func() {},
		lose:      func(faults.Op, bool) bool { return false },
	}
}

// faultyOf returns s if it is faulty, otherwise a faulty session whose
// functions do nothing.
func faultyOf(s driver.Session) *faulty {
	if f, ok := s.(*faulty); ok {
		return f
	}
	return newFaulty(nil, nil)
}

// A request is a call of a method, with its arguments and results.
type request struct {
	s      *faulty
	ctx    context.Context
	queue  string // or the prefix of Walk
	spec   driver.NodeSpec
	place  driver.Place
	ahead  []driver.Node
	why    driver.Cause
	prefix string
	name   string

	joined driver.Joined // without its watch
	watch  driver.Watch
	nodes  []driver.Node
	now    driver.Place
	info   driver.NodeInfo
	queues []string
	value  []byte // an argument of SetValue
	token  int64
	err    error
}

// A handler handles a request. It may call send to carry it out correctly.
type handler func(r *request, send func())

// on adds a handler, which runs before the handlers that were added earlier.
func (s *faulty) on(op faults.Op, h handler) {
	next := s.handlers[op]
	s.handlers[op] = h
	if next != nil {
		s.handlers[op] = func(r *request, send func()) { h(r, func() { next(r, send) }) }
	}
}

func on(op faults.Op, h handler) plant { return func(s *faulty) { s.on(op, h) } }

func after(op faults.Op, change func(r *request)) plant {
	return func(s *faulty) { s.after(op, change) }
}

func (s *faulty) after(op faults.Op, change func(r *request)) {
	s.on(op, func(r *request, send func()) {
		if send(); r.err == nil {
			change(r)
		}
	})
}

func before(op faults.Op, change func(r *request)) plant {
	return func(s *faulty) { s.before(op, change) }
}

func (s *faulty) before(op faults.Op, change func(r *request)) {
	s.on(op, func(r *request, send func()) {
		change(r)
		send()
	})
}

func refuses(op faults.Op, err error, which func(r *request) bool) plant {
	return on(op, func(r *request, send func()) {
		if which(r) {
			r.err = err
			return
		}
		send()
	})
}

func confuses(op faults.Op, from, to error) plant {
	return on(op, func(r *request, send func()) {
		if send(); errors.Is(r.err, from) {
			r.err = to
		}
	})
}

func all(plants ...plant) plant {
	return func(s *faulty) {
		for _, p := range plants {
			p(s)
		}
	}
}

// unarmed makes Create arm no watch, so that conformance tests call Watch.
func unarmed(s *faulty) {
	s.on(faults.OpCreate, func(r *request, send func()) {
		r.spec.Predecessor = nil
		send()
	})
}

// unknowing makes Create return no nodes ahead, for plants that change names,
// tokens or order.
func unknowing(s *faulty) {
	unarmed(s)
	s.on(faults.OpCreate, func(r *request, send func()) {
		send()
		r.joined = driver.Joined{Place: r.joined.Place}
	})
}

// inStore returns a *T that all sessions of the store share.
func inStore[T any](s *faulty) *T {
	type key struct {
		store *memdriver.Store
		t     reflect.Type
	}
	v, _ := common.LoadOrStore(key{s.store, reflect.TypeFor[T]()}, new(T))
	return v.(*T)
}

var common sync.Map

func (s *faulty) do(op faults.Op, r *request, send func()) {
	r.s = s
	if h := s.handlers[op]; h != nil {
		h(r, send)
		return
	}
	send()
}

func (s *faulty) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	r := &request{ctx: ctx, queue: queue, spec: n}
	s.do(faults.OpCreate, r, func() {
		r.joined, r.err = s.base.Create(r.ctx, r.queue, r.spec)
		r.watch = r.joined.Watch
	})
	if r.err != nil {
		return driver.Joined{}, r.err
	}
	r.joined.Watch = r.watch
	return r.joined, nil
}

func (s *faulty) List(ctx context.Context, queue string) ([]driver.Node, error) {
	r := &request{ctx: ctx, queue: queue}
	s.do(faults.OpList, r, func() { r.nodes, r.err = s.base.List(r.ctx, r.queue) })
	return r.nodes, r.err
}

func (s *faulty) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	r := &request{ctx: ctx, queue: queue, place: p, ahead: ahead}
	s.do(faults.OpWatch, r, func() { r.watch, r.err = s.base.Watch(r.ctx, r.queue, r.place, r.ahead...) })
	return r.watch, r.err
}

func (s *faulty) WatchQueue(ctx context.Context, queue string) (driver.Watch, error) {
	r := &request{ctx: ctx, queue: queue}
	s.do(faults.OpWatchQueue, r, func() { r.watch, r.err = s.base.WatchQueue(r.ctx, r.queue) })
	return r.watch, r.err
}

func (s *faulty) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	r := &request{ctx: ctx, queue: queue, place: p, why: why}
	s.do(faults.OpDelete, r, func() { r.err = s.base.Delete(r.ctx, r.queue, r.place, r.why) })
	return r.err
}

func (s *faulty) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	r := &request{ctx: ctx, queue: queue, place: p, prefix: prefix}
	s.do(faults.OpReplace, r, func() { r.now, r.err = s.base.Replace(r.ctx, r.queue, r.place, r.prefix) })
	return r.now, r.err
}

func (s *faulty) Read(ctx context.Context, queue, name string) (driver.NodeInfo, error) {
	r := &request{ctx: ctx, queue: queue, name: name}
	s.do(faults.OpRead, r, func() { r.info, r.err = s.base.Read(r.ctx, r.queue, r.name) })
	return r.info, r.err
}

func (s *faulty) Walk(ctx context.Context, prefix string) ([]string, error) {
	r := &request{ctx: ctx, queue: prefix}
	s.do(faults.OpWalk, r, func() { r.queues, r.err = s.base.Walk(r.ctx, r.queue) })
	return r.queues, r.err
}

func (s *faulty) Remove(ctx context.Context, queue string, p driver.Place) error {
	r := &request{ctx: ctx, queue: queue, place: p}
	s.do(faults.OpRemove, r, func() { r.err = s.base.Remove(r.ctx, r.queue, r.place) })
	return r.err
}

func (s *faulty) SetValue(ctx context.Context, queue string, p driver.Place, value []byte) error {
	r := &request{ctx: ctx, queue: queue, place: p, value: value}
	s.do(faults.OpSetValue, r, func() { r.err = s.base.SetValue(r.ctx, r.queue, r.place, r.value) })
	return r.err
}

func (s *faulty) Value(ctx context.Context, queue string) ([]byte, int64, error) {
	r := &request{ctx: ctx, queue: queue}
	s.do(faults.OpValue, r, func() { r.value, r.token, r.err = s.base.Value(r.ctx, r.queue) })
	return r.value, r.token, r.err
}

func (s *faulty) Close() error {
	r := &request{ctx: context.Background()}
	s.do(faults.OpClose, r, func() { r.err = s.base.Close() })
	return r.err
}

func (s *faulty) Err() error {
	if s.err != nil {
		return s.err()
	}
	return s.base.Err()
}

func (s *faulty) Done() <-chan struct{} {
	if s.done != nil {
		return s.done
	}
	return s.base.Done()
}

func (s *faulty) Describe() driver.SessionInfo {
	info := s.base.Describe()
	if s.describe != nil {
		s.describe(&info)
	}
	return info
}

func (s *faulty) OnHeartbeat(f func(left, term time.Duration)) bool {
	if s.heartbeat != nil {
		return s.heartbeat(f)
	}
	return s.base.OnHeartbeat(f)
}

var errReset = fmt.Errorf("%w: connection reset by peer", driver.ErrUnavailable)

type cuts struct {
	mu    sync.Mutex
	whole chan struct{} // closed while there is no cut
}

func (s *faulty) cuts() *cuts {
	c := &cuts{whole: make(chan struct{})}
	close(c.whole)
	s.cut = func(now bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if now {
			c.whole = make(chan struct{})
		} else {
			close(c.whole)
		}
	}
	return c
}

func (c *cuts) healed() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.whole
}

// late implements HoldRequest for op: the request fails now, and arrives is
// called later.
func (s *faulty) late(op faults.Op, arrives func(r *request)) {
	var mu sync.Mutex
	var next []*request // filled in by the delayed requests
	s.hold = func() (arrive func()) {
		mu.Lock()
		defer mu.Unlock()
		held := new(request)
		next = append(next, held)
		return func() {
			mu.Lock()
			defer mu.Unlock()
			if held.s != nil { // a request was sent and delayed
				arrives(held)
			}
		}
	}
	s.on(op, func(r *request, send func()) {
		mu.Lock()
		delayed := len(next) > 0
		if delayed {
			*next[0], next = *r, next[1:]
			r.err = errReset
		}
		mu.Unlock()
		if !delayed {
			send()
		}
	})
}

type places struct{ sync.Map }

func (s *faulty) places() *places {
	a := new(places)
	s.after(faults.OpCreate, func(r *request) { a.Store(r.joined.Place, r.queue) })
	return a
}

func (a *places) each(f func(queue string, p driver.Place)) {
	a.Range(func(p, queue any) bool {
		f(queue.(string), p.(driver.Place))
		return true
	})
}
