package cas

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// Connect begins a session, with a new ID. If it returns an error, it closes kv.
func Connect(ctx context.Context, kv KV, c session.Config) (*session.Session, error) {
	c.ID = "session-" + rand.Text()
	s := newStore(kv, c.ID, c.Timeout)
	var of session.Store = s
	if w, ok := kv.(Watcher); ok {
		of = &notifier{store: s, watcher: w}
	}
	made, err := session.Connect(ctx, of, c)
	if err != nil {
		_ = kv.Close()
	}
	return made, err
}

// store implements session.Store.
type store struct {
	kv      KV
	id, key string // of the session
	timeout time.Duration
	listens atomic.Bool      // whether notices arrive
	tidied  time.Time        // when Tidy was last called
	unused  map[string]int64 // keys without nodes at that time, with their revisions

	mu    sync.Mutex
	cache map[string]*cached // by key
}

func newStore(kv KV, id string, timeout time.Duration) *store {
	s := &store{kv: kv, id: id, key: sessionKey(id), timeout: timeout, cache: make(map[string]*cached)}
	s.learn(0, Entry{Key: s.key, Value: []byte("{}")}) // what Begin replaces
	return s
}

func (s *store) owns(n node) bool { return n.Owner == s.id }

var errEnded = fmt.Errorf("%w: the store has dropped it", driver.ErrSessionEnded)

// life is the value of a session's key.
type life struct {
	Timeout time.Duration
	Nonce   string // because some stores ignore a write that changes nothing
}

// over reports whether a session has expired whose key has not changed since.
func over(e Entry, since time.Time) bool {
	var v life
	return json.Unmarshal(e.Value, &v) == nil && time.Since(since) >= v.Timeout
}

// sign writes the session's key, or removes it at the end. A conflict comes from
// another heartbeat, which may have had no answer, or from whoever ended it.
func (s *store) sign(ctx context.Context, end bool) error {
	for fresh := false; ; fresh = true {
		e, err := s.get(ctx, s.key, fresh)
		if err != nil || e.Value == nil {
			return cmp.Or(err, errEnded)
		}
		if e.Value = nil; !end {
			e.Value = encode(life{s.timeout, rand.Text()})
		}
		if _, err = s.write(ctx, e); !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

func (s *store) Begin(ctx context.Context, _ time.Duration) (session.Begun, error) {
	return session.Begun{}, s.sign(ctx, false)
}

// Beat makes the session call Expire at once.
func (s *store) Beat(ctx context.Context) (time.Duration, error) { return 0, s.sign(ctx, false) }

// End removes the nodes once the key is gone, because then no change succeeds
// that is still under way.
func (s *store) End(ctx context.Context) error {
	defer s.kv.Close()
	if err := s.sign(ctx, true); err != nil && !errors.Is(err, driver.ErrSessionEnded) {
		return err
	}
	return s.prune(ctx, true)
}

func (s *store) Expire(ctx context.Context) (more bool, err error) {
	return false, s.prune(ctx, false)
}

// prune removes the nodes of ended sessions from the queues that this session
// has used: its own nodes, or those that it meets in queues that it uses now.
func (s *store) prune(ctx context.Context, own bool) (failed error) {
	queues := make(map[string][]string) // by session
	s.mu.Lock()
	for key, c := range s.cache {
		name, ok := queueOf(key)
		if !ok || !own && time.Since(c.used) >= s.timeout {
			continue
		}
		q, _ := decode(c.Entry)
		if c.doubt {
			q.Nodes = append(q.Nodes, node{Owner: s.id})
		}
		for _, n := range q.Nodes {
			if n.Owner != "" && s.owns(n) == own && !slices.Contains(queues[n.Owner], name) {
				queues[n.Owner] = append(queues[n.Owner], name)
			}
		}
	}
	s.mu.Unlock()
	for id, names := range queues {
		ended, err := s.ended(ctx, sessionKey(id))
		for _, name := range names {
			if ended && err == nil {
				err = s.remove(ctx, name, sessionKey(id), false, func(n node) bool { return n.Owner == id })
			}
		}
		if !errors.Is(err, driver.ErrSessionEnded) { // the guard's error if the session lives
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// ended reports whether a session has ended. If it has expired, ended ends it.
func (s *store) ended(ctx context.Context, key string) (bool, error) {
	e, err := s.get(ctx, key, true)
	if err != nil || e.Value == nil {
		return true, err
	}
	var since time.Time
	s.with(key, func(c *cached) { since = c.since })
	if !over(e, since) {
		return false, nil
	}
	e.Value = nil
	_, err = s.write(ctx, e)
	return err == nil, nil // otherwise it has sent a heartbeat, or the next search ends it
}

// Tidy removes the keys of sessions that have expired, and of queues without
// nodes, that are the same as at the last call, and forgets queues in which this
// session has no node. The first call makes no request, so that short sessions
// do not tidy.
func (s *store) Tidy(ctx context.Context) (more bool, err error) {
	before, since := s.unused, s.tidied
	if s.unused, s.tidied = make(map[string]int64), time.Now(); before == nil {
		return false, nil
	}
	s.mu.Lock()
	maps.DeleteFunc(s.cache, func(key string, c *cached) bool {
		q, _ := decode(c.Entry)
		return key != s.key && time.Since(c.used) > time.Hour && !c.doubt && !slices.ContainsFunc(q.Nodes, s.owns)
	})
	s.mu.Unlock()
	all, err := s.kv.Scan(ctx)
	for _, e := range all {
		q, decodeErr := decode(e)
		if decodeErr != nil || len(q.Nodes) > 0 || q.Value != nil {
			continue
		}
		s.unused[e.Key] = e.Revision
		if before[e.Key] == e.Revision && over(e, since) {
			_, _ = s.kv.Write(ctx, Entry{Key: e.Key, Revision: e.Revision}) // an error leaves it to the next time
		}
	}
	return false, err
}

func (s *store) Do(ctx context.Context, c session.Change) (r session.Result, err error) {
	q, err := s.edit(ctx, c.Queue, s.key, true, func(q *queue) (err error) {
		r.Place, err = s.apply(c, q)
		return err
	})
	if err != nil {
		s.with(queueKey(c.Queue), func(cache *cached) { cache.doubt = cache.doubt || c.Kind == session.Create })
		return r, err
	}
	if c.Kind == session.Create {
		r.Place = q.Nodes[len(q.Nodes)-1].place()
	}
	now := q.snapshot()
	r.Nodes, r.Version = now.Nodes, now.Version
	if s.listens.Load() {
		r.Announced = session.Every
	}
	return r, nil
}

// apply makes a change, and returns the node as it was before.
func (s *store) apply(c session.Change, q *queue) (was driver.Place, err error) {
	if c.Kind == session.Create {
		q.Nodes = append(q.Nodes, node{Name: c.Prefix, Owner: s.id, Number: c.Number, Data: c.Data})
		return was, nil
	}
	i := slices.IndexFunc(q.Nodes, func(n node) bool {
		if c.Kind == session.Remove {
			return n.Name == c.Place.Name && n.Token == c.Place.Token
		}
		return s.owns(n) && n.Token == c.Place.Token
	})
	if i < 0 {
		return was, driver.ErrGone
	}
	was = q.Nodes[i].place()
	switch {
	case c.Kind == session.Replace:
		q.Nodes[i].Name = driver.FormatName(c.Prefix, was.Seq)
	case c.Kind != session.SetValue:
		q.Nodes = slices.Delete(q.Nodes, i, i+1)
		if c.Cause == driver.Released {
			q.Released = was.Name
		}
	case q.Value != nil && q.Value.Token > c.Place.Token:
		return was, driver.ErrStale
	default:
		q.Value = &value{c.Place.Token, c.Data}
	}
	return was, nil
}

// Cancel relies on the heartbeat: after it, no Create succeeds that is still
// under way.
func (s *store) Cancel(ctx context.Context, creates []session.Change) error {
	if err := s.sign(ctx, false); err != nil {
		return err
	}
	queues, numbers := make(map[string]bool), make(map[int64]bool)
	for _, c := range creates {
		queues[c.Queue], numbers[c.Number] = true, true
	}
	for name := range queues {
		if err := s.remove(ctx, name, s.key, true, func(n node) bool { return s.owns(n) && numbers[n.Number] }); err != nil {
			return err
		}
	}
	return nil
}

// remove removes the nodes that match.
func (s *store) remove(ctx context.Context, name, guard string, lives bool, match func(node) bool) error {
	_, err := s.edit(ctx, name, guard, lives, func(q *queue) error {
		q.Nodes = slices.DeleteFunc(q.Nodes, match)
		return nil
	})
	return err
}

// read reads a queue.
func (s *store) read(ctx context.Context, name string) (queue, error) {
	e, err := s.get(ctx, queueKey(name), true)
	if err != nil {
		return queue{}, err
	}
	return decode(e)
}

func (s *store) Look(ctx context.Context, ask []session.Query) ([]session.Snapshot, error) {
	found := make([]session.Snapshot, len(ask))
	for i, of := range ask {
		q, err := s.read(ctx, of.Queue)
		if err != nil {
			return found, err
		}
		found[i] = q.snapshot()
	}
	return found, nil
}

func (s *store) Value(ctx context.Context, queue string) ([]byte, int64, error) {
	q, err := s.read(ctx, queue)
	if err != nil || q.Value == nil {
		return nil, 0, err
	}
	return q.Value.Text, q.Value.Token, nil
}

func (s *store) Read(ctx context.Context, queue, name string) (driver.NodeInfo, error) {
	q, err := s.read(ctx, queue)
	for _, n := range q.Nodes {
		if n.Name == name {
			return driver.NodeInfo{Token: n.Token, Data: n.Data, Owner: n.Owner}, nil
		}
	}
	return driver.NodeInfo{}, cmp.Or(err, driver.ErrGone)
}

func (s *store) Walk(ctx context.Context, prefix string) (queues []string, err error) {
	all, err := s.kv.Scan(ctx)
	for _, e := range all {
		name, ok := queueOf(e.Key)
		below := prefix == "" || name == prefix || strings.HasPrefix(name, prefix+"/")
		if q, err := decode(e); ok && below && err == nil && len(q.Nodes) > 0 {
			queues = append(queues, name)
		}
	}
	return queues, err
}

// notifier is a store with notices.
type notifier struct {
	*store
	watcher Watcher
	host    session.Host
	once    sync.Once
}

func (n *notifier) Start(h session.Host) { n.host = h }

func (n *notifier) Listening(string, bool) bool { return n.listens.Load() }

// Subscribe watches the store from now on. Until the first notices arrive, the
// session polls.
func (n *notifier) Subscribe(ctx context.Context, q session.Query) (session.Snapshot, error) {
	n.once.Do(func() { n.host.Go(n.watch) })
	found, err := n.Look(ctx, []session.Query{q})
	return found[0], err
}

func (n *notifier) watch(ctx context.Context) {
	listen := func(now bool) {
		n.listens.Store(now)
		n.host.Lost()
	}
	for ctx.Err() == nil {
		_ = n.watcher.Watch(ctx, "q/", func() { listen(true) }, n.changed)
		listen(false)
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// changed is called with each notice. It spares a write on a condition that is
// known to be old, but the session believes nothing that it has not read.
func (n *notifier) changed(e Entry) {
	name, ok := queueOf(e.Key)
	n.mu.Lock()
	c := n.cache[e.Key]
	if ok = ok && c != nil; ok && e.Revision > c.Revision {
		c.known = false
	}
	n.mu.Unlock()
	if q, err := decode(e); ok && err == nil {
		n.host.Noticed(name, q.snapshot())
	}
}
