package cas

import (
	"cmp"
	"context"
	cryptorand "crypto/rand"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// Connect begins a session, with a new ID. If it returns an error, it closes kv.
func Connect(ctx context.Context, kv KV, c session.Config) (*session.Session, error) {
	s := newStore(kv, "session-"+cryptorand.Text(), c.Timeout)
	c.ID = s.id
	var of session.Store = s
	if w, ok := kv.(Watcher); ok {
		of = notifier{s, w}
	}
	made, err := session.Connect(ctx, of, c)
	if err != nil {
		_ = kv.Close()
		return nil, err
	}
	return made, nil
}

// store implements session.Store.
type store struct {
	kv        KV
	id        string
	timeout   time.Duration
	host      *session.Host // nil without notices
	listening atomic.Bool   // whether notices arrive
	listen    sync.Once
	beats     atomic.Int64
	empty     map[string]int64 // used by Tidy: keys of empty queues, with their revisions

	mu      sync.Mutex
	renewed int64              // revision of the session's key
	queues  map[string]*cached // that the session has used
	noted   map[string]note    // sessions by ID, as last scanned
	trip    time.Duration      // how long a read takes, on average
}

// cached is what the session knows about a queue.
type cached struct {
	turn chan struct{} // full while the session changes the queue
	queue
	known   bool
	asked   time.Time // when the session last used the queue
	doubt   bool      // a Create may have added a node without an answer
	chased  bool      // a goroutine reads the queue after notices
	noticed int64     // revision of the last notice
}

var (
	_ session.Expirer   = (*store)(nil)
	_ session.Inspector = (*store)(nil)
	_ session.Tidier    = (*store)(nil)
)

func newStore(kv KV, id string, timeout time.Duration) *store {
	return &store{kv: kv, id: id, timeout: timeout, queues: make(map[string]*cached), noted: make(map[string]note)}
}

var errEnded = fmt.Errorf("%w: the store has dropped it", driver.ErrSessionEnded)

// errSame is returned by the function of edit if there is nothing to change.
var errSame = errors.New("no change")

// cache returns what the session knows about a queue. The caller holds mu.
func (s *store) cache(name string) *cached {
	c := s.queues[name]
	if c == nil {
		c = &cached{turn: make(chan struct{}, 1)}
		s.queues[name] = c
	}
	return c
}

// use returns what the session knows about a queue that it uses now, and whether
// that may still be true.
func (s *store) use(name string) (*cached, queue, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cache(name)
	c.asked = time.Now()
	return c, c.queue, c.known && c.noticed <= c.revision
}

// cached returns what the session knows about a queue, if it is of that revision.
func (s *store) cached(name string, revision int64) (queue, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cache(name)
	return c.queue, c.known && c.revision == revision
}

// read reads a queue.
func (s *store) read(ctx context.Context, name string) (queue, error) {
	began := time.Now()
	e, err := s.kv.Get(ctx, queueKey(name))
	if err != nil {
		return queue{}, err
	}
	s.mu.Lock()
	s.trip += (time.Since(began) - s.trip) / 8
	s.mu.Unlock()
	if was, same := s.cached(name, e.Revision); same {
		return was, nil
	}
	q, err := decode(e)
	if err == nil {
		s.learn(name, q)
	}
	return q, err
}

// guard is a condition of a change besides the queue's revision: that a
// session's key exists, or that it does not.
type guard struct {
	Entry
	lives bool
}

func (s *store) own() *guard { return &guard{Entry{Key: sessionKey(s.id)}, true} }

// check reads the guard's key. It returns errEnded if the guard does not hold.
func (s *store) check(ctx context.Context, g *guard) (err error) {
	if g.Entry, err = s.kv.Get(ctx, g.Key); err != nil {
		return err
	}
	if (g.Value != nil) != g.lives {
		return errEnded
	}
	if g.lives {
		s.renew(g.Revision)
	}
	return nil
}

// renew records a revision of the session's key, and returns the latest one.
func (s *store) renew(revision int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewed = max(s.renewed, revision)
	return s.renewed
}

// write writes an entry under the condition of g.
func (s *store) write(ctx context.Context, e Entry, g *guard, others ...Entry) (int64, error) {
	if g.lives {
		g.Revision = s.renew(0) // a heartbeat may have changed it
	}
	return s.kv.Write(ctx, e, append(others, g.Entry)...)
}

// edit changes a queue with f, under the condition of g, and returns the result.
// If it does not make the change, and never will, the error is Refused.
func (s *store) edit(ctx context.Context, name string, g *guard, f func(*queue) error) (was queue, err error) {
	c, _, _ := s.use(name)
	select { // the session's own changes need not conflict
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return was, session.Refused(ctx.Err())
	}
	_, was, known := s.use(name)
	for try, sent := 0, int64(-1); ; try++ {
		if try > 0 || !known {
			if was, err = s.read(ctx, name); err == nil && was.revision == sent {
				err = s.check(ctx, g) // the queue was not the reason for the conflict
			}
			if err != nil {
				return was, session.Refused(err)
			}
		}
		now := was
		now.Nodes = slices.Clone(was.Nodes)
		if err := f(&now); err != nil {
			if try == 0 && known {
				continue // the cache may be old
			}
			return was, s.unchanged(ctx, g, err)
		}
		sent = was.revision
		revision, err := s.write(ctx, Entry{queueKey(name), mustJSON(now), sent}, g)
		if err == nil {
			now = now.at(revision)
			s.learn(name, now)
		}
		if !errors.Is(err, ErrConflict) {
			return now, err
		}
		first := joinPause
		if len(now.Nodes) < len(was.Nodes) {
			first = leavePause
		}
		if err := backOff(ctx, first, try); err != nil {
			return was, session.Refused(err)
		}
	}
}

// unchanged returns the error of an edit whose function has returned err.
func (s *store) unchanged(ctx context.Context, g *guard, err error) error {
	if errors.Is(err, errSame) {
		return nil
	}
	return session.Refused(cmp.Or(s.check(ctx, g), err))
}

const (
	leavePause = time.Millisecond // those who leave go first, because others wait for them
	joinPause  = 4 * time.Millisecond
	lastPause  = 64 * time.Millisecond
)

// backOff waits for a random time after a conflict, longer after each one.
func backOff(ctx context.Context, first time.Duration, try int) error {
	return sleep(ctx, rand.N(min(first<<min(try, 6), lastPause)))
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Begin implements session.Store.
func (s *store) Begin(ctx context.Context, _ time.Duration) (session.Begun, error) {
	return session.Begun{}, s.beat(ctx)
}

// Beat implements session.Store. It makes the session call Expire at once while
// there are other sessions in its queues.
func (s *store) Beat(ctx context.Context) (time.Duration, error) {
	err := s.beat(ctx)
	if s.meets() {
		return 0, err
	}
	return s.timeout, err
}

// beat writes the session's key, first when the session begins. A conflict comes
// from another heartbeat, which may have had no answer, or from the end.
func (s *store) beat(ctx context.Context) error {
	for g := s.own(); ; {
		value := mustJSON(sessionValue{s.timeout, s.beats.Add(1)})
		revision, err := s.kv.Write(ctx, Entry{g.Key, value, s.renew(0)})
		if err == nil {
			s.renew(revision)
		}
		if !errors.Is(err, ErrConflict) {
			return err
		}
		if err := s.check(ctx, g); err != nil {
			return err
		}
	}
}

// sessionValue is the value of a session's key.
type sessionValue struct {
	Timeout time.Duration
	Beats   int64 // makes each value differ
}

// End implements session.Store. Once the key is gone, no change succeeds that is
// still under way, and so the queues are pruned after that.
func (s *store) End(ctx context.Context) error {
	defer s.kv.Close()
	g := s.own()
	for {
		_, err := s.kv.Write(ctx, Entry{Key: g.Key, Revision: s.renew(0)})
		if errors.Is(err, ErrConflict) {
			err = s.check(ctx, g)
			if err == nil {
				continue
			}
		}
		if err != nil && !errors.Is(err, errEnded) {
			return err
		}
		return s.prune(ctx, s.graves(true))
	}
}

// Do implements session.Store.
func (s *store) Do(ctx context.Context, c session.Change) (r session.Result, err error) {
	switch c.Kind {
	case session.Create:
		return s.create(ctx, c)
	case session.SetValue:
		return r, s.setValue(ctx, c)
	}
	_, err = s.edit(ctx, c.Queue, s.own(), func(q *queue) error {
		i := q.index(func(n node) bool { return s.concerns(c, n) })
		if i < 0 {
			return driver.ErrGone
		}
		r.Place = q.Nodes[i].place()
		if c.Kind == session.Replace {
			q.Nodes[i].Name = driver.FormatName(c.Prefix, r.Place.Seq)
			return nil
		}
		q.Nodes = slices.Delete(q.Nodes, i, i+1)
		if c.Cause == driver.Released {
			q.Released = r.Place.Name
		}
		return nil
	})
	return r, err
}

// concerns reports whether n is the node of the change.
func (s *store) concerns(c session.Change, n node) bool {
	if c.Kind == session.Remove {
		return n.Name == c.Place.Name && n.Token == c.Place.Token
	}
	return n.Owner == s.id && n.Token == c.Place.Token
}

func (s *store) create(ctx context.Context, c session.Change) (r session.Result, err error) {
	now, err := s.edit(ctx, c.Queue, s.own(), func(q *queue) error {
		q.Nodes = append(q.Nodes, node{Name: c.Prefix, Owner: s.id, Number: c.Number, Data: c.Data})
		return nil
	})
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cache(c.Queue).doubt = true
		return r, err
	}
	r.Place = now.Nodes[len(now.Nodes)-1].place()
	r.Nodes = now.snapshot().Nodes
	if s.listening.Load() {
		r.Announced = session.Every
	}
	return r, nil
}

// Cancel implements session.Store. After the heartbeat, no Create succeeds that
// is still under way, and so the queue shows those that have succeeded.
func (s *store) Cancel(ctx context.Context, creates []session.Change) error {
	if err := s.beat(ctx); err != nil {
		return err
	}
	queues := make(map[string][]int64)
	for _, c := range creates {
		queues[c.Queue] = append(queues[c.Queue], c.Number)
	}
	for name, numbers := range queues {
		err := s.remove(ctx, name, s.own(), func(n node) bool { return n.Owner == s.id && slices.Contains(numbers, n.Number) })
		if err != nil {
			return err
		}
	}
	return nil
}

// remove removes the nodes that match.
func (s *store) remove(ctx context.Context, name string, g *guard, match func(node) bool) error {
	_, err := s.edit(ctx, name, g, func(q *queue) error {
		before := len(q.Nodes)
		if q.Nodes = slices.DeleteFunc(q.Nodes, match); len(q.Nodes) == before {
			return errSame
		}
		return nil
	})
	return err
}

// Look implements session.Store.
func (s *store) Look(ctx context.Context, ask []session.Query) ([]session.Snapshot, error) {
	found := make([]session.Snapshot, len(ask))
	for i, q := range ask {
		s.use(q.Queue)
		now, err := s.read(ctx, q.Queue)
		if err != nil {
			return nil, err
		}
		found[i] = now.snapshot()
	}
	return found, nil
}
