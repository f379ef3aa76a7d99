package cas

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
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

// Observe returns a session that changes nothing, for driver.Observer. If it
// returns an error, it closes kv.
func Observe(ctx context.Context, kv KV, c session.Config) (*session.Session, error) {
	end := func() { _ = kv.Close() }
	made, err := session.Observe(ctx, newStore(kv, c.ID, c.Timeout), end, c)
	if err != nil {
		end()
	}
	return made, err
}

// store implements session.Store.
type store struct {
	kv         KV
	id         string
	timeout    time.Duration
	listens    atomic.Bool // whether notices arrive
	tidies     bool        // whether Tidy was called before
	generation Generation  // of the data when the session began

	mu    sync.Mutex
	cache map[string]*cached // by key
	open  map[int64]string   // queues that may have own nodes, by Change.Number
}

func newStore(kv KV, id string, timeout time.Duration) *store {
	s := &store{kv: kv, id: id, timeout: timeout, cache: make(map[string]*cached), open: make(map[int64]string)}
	s.learn(Entry{Key: sessionKey(id), Value: encode(life{})}) // what Begin replaces
	return s
}

// queue is the value of a queue's key.
//
// The token and sequence of a node are the revision of the write that adds it.
// That write cannot know its revision, so it stores zeros. Readers replace the
// zeros. Other programs must do so, too, before they write the key.
type queue struct {
	session.Queue
	Last     int64    // the greatest token so far
	Base     int64    `json:",omitempty"` // of the generation at the last write
	Layout   int      `json:",omitempty"` // version of this type
	Writes   []string `json:",omitempty"` // random names of the latest writes, oldest first
	revision int64
}

// remembered is how many Writes a queue keeps. They show a session whether its
// write was stored although the store has reported a conflict.
const remembered = 16

// layout is the version of the type queue. It changes whenever clients of an
// earlier version could misread the value.
const layout = 1

func decode(e Entry) (queue, error) {
	q := queue{revision: e.Revision, Layout: layout}
	if err := json.Unmarshal(e.Value, &q); e.Value != nil && err != nil {
		return q, fmt.Errorf("key %s: %w", e.Key, err)
	}
	if err := session.CheckLayout("key "+e.Key+": the data", q.Layout, layout); err != nil {
		return queue{}, err
	}
	for i := range q.Nodes {
		if n := &q.Nodes[i]; n.Token == 0 && n.Owner != "" {
			prefix, _, _ := driver.ParseName(n.Name)
			n.Token = max(e.Revision+q.Base, q.Last+1) // Last is greater if a backup was restored
			n.Name = driver.FormatName(prefix, n.Token)
		}
		q.Last = max(q.Last, q.Nodes[i].Token)
	}
	return q, nil
}

func encode(v any) []byte {
	b, _ := json.Marshal(v) // never fails for the types of this package
	return b
}

func (q queue) snapshot() session.Snapshot { return q.Snapshot(q.revision + 1) }

// cached is what the session knows about a key.
type cached struct {
	turn  chan struct{} // serializes this session's changes of a queue
	Entry               // latest; guarded by store.mu, like the rest
	since time.Time     // when it was first seen
	used  time.Time     // when the session last used it
	known bool          // false after a notice of a later change
}

// with runs f on the cache entry of a key, holding s.mu, and returns the entry.
func (s *store) with(key string, f func(*cached)) *cached {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.cache[key]
	if c == nil {
		c = &cached{turn: make(chan struct{}, 1)}
		s.cache[key] = c
	}
	c.used = time.Now()
	f(c)
	return c
}

// learn caches an entry and returns when the session first saw it. An outdated
// entry costs only a failed write.
func (s *store) learn(e Entry) (since time.Time) {
	s.with(e.Key, func(c *cached) {
		if c.Revision != e.Revision {
			c.since = time.Now()
		}
		c.Entry, c.known, since = e, true, c.since
	})
	return since
}

// get returns the entry of a key, from the cache unless it must be fresh.
func (s *store) get(ctx context.Context, key string, fresh bool) (e Entry, err error) {
	s.with(key, func(c *cached) { e, fresh = c.Entry, fresh || !c.known })
	if !fresh {
		return e, nil
	}
	known := e.Revision
	e, err = s.kv.Get(ctx, key)
	e.Key = key
	if err == nil && e.Value != nil && e.Revision < known { // a deposed leader, or a backup
		err = fmt.Errorf("%w: the store has returned an older state of key %s than before", driver.ErrUnavailable, key)
	}
	if err == nil {
		s.learn(e)
	}
	return e, err
}

func (s *store) write(ctx context.Context, e Entry, guard ...Entry) (_ Entry, err error) {
	if e.Revision, err = s.kv.Write(ctx, e, guard...); err == nil {
		s.learn(e)
	}
	return e, err
}

// edit changes a queue with f if the session's existence matches lives. A
// change that will never be made is Refused.
func (s *store) edit(ctx context.Context, name, id string, lives bool, f func(*queue) error) (q queue, err error) {
	turn := s.with(queueKey(name), func(*cached) {}).turn
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return q, session.Refused(ctx.Err())
	}
	write := rand.Text()[:8]
	var doubts []string // writes before the tries with unknown outcome
	for try, sent := 0, int64(-1); ; try++ {
		e, err := s.get(ctx, queueKey(name), try > 0)
		guard, failed := s.get(ctx, sessionKey(id), e.Revision == sent) // reads again if the guard caused the conflict
		if sent = e.Revision; failed == nil && (guard.Value != nil) != lives {
			failed = errEnded
		}
		if err = cmp.Or(err, failed); err == nil {
			q, err = decode(e)
		}
		before, latest := slices.Clone(q.Nodes), slices.Clone(q.Writes)
		if err == nil && slices.Contains(latest, write) {
			return q, nil
		}
		if err == nil {
			doubts = slices.DeleteFunc(doubts, func(name string) bool { return len(latest) < remembered || slices.Contains(latest, name) })
			err = f(&q)
		}
		switch {
		case err == errMade:
			return q, nil
		case len(doubts) > 0 && err != nil:
			return q, fmt.Errorf("%w: an earlier try may have made the change: %v", driver.ErrUnavailable, err)
		case err != nil && try > 0:
			return q, session.Refused(err)
		case err != nil:
			continue
		}
		q.Base, q.Writes = s.generation.Base, append(q.Writes, write)
		q.Writes = q.Writes[max(0, len(q.Writes)-remembered):]
		e.Value, e.Note = encode(q), note(before, q.Nodes)
		guards := []Entry{guard}
		if s.unguarded() {
			guards = nil
		}
		if e, err = s.write(ctx, e, guards...); err == nil {
			return decode(e)
		}
		if !errors.Is(err, ErrConflict) {
			return q, err
		}
		if errors.Is(err, driver.ErrUnavailable) {
			doubts = append(doubts, strings.Join(latest[max(0, len(latest)-1):], ""))
		}
		session.Sleep(ctx, mathrand.N(time.Millisecond<<min(try, 10)))
	}
}

// note returns the names of the nodes that a write removes, each between slashes,
// or nothing if there are too many.
func note(before, after []session.Row) string {
	stays := make(map[string]bool)
	for _, n := range after {
		stays[n.Name] = true
	}
	gone := "/"
	for _, n := range before {
		if !stays[n.Name] {
			gone += n.Name + "/"
		}
	}
	if len(gone) > 1000 {
		return ""
	}
	return gone
}

// errMade says that an earlier try of a Create has made the node.
var errMade = errors.New("the node is there")

func (s *store) unguarded() bool {
	u, ok := s.kv.(Unguarded)
	return ok && u.Unguarded()
}

// confirm makes sure that the session existed when its node was added, because
// an ended session's node would block the queue. If the read is refused, the
// error is not Refused, because the node is there.
func (s *store) confirm(ctx context.Context, name string) error {
	own, err := s.get(ctx, sessionKey(s.id), true)
	if err != nil && !errors.Is(err, driver.ErrSessionEnded) {
		return fmt.Errorf("%w: the session may have ended: %v", driver.ErrUnavailable, err)
	}
	if err == nil && own.Value == nil {
		_ = s.keep(ctx, name, s.id, false, func(n session.Row) bool { return n.Owner != s.id })
		err = errEnded
	}
	return err
}

// keep removes the nodes that do not match.
func (s *store) keep(ctx context.Context, name, id string, lives bool, match func(session.Row) bool) error {
	_, err := s.edit(ctx, name, id, lives, func(q *queue) error {
		q.Keep(match)
		return nil
	})
	return err
}

var errEnded = fmt.Errorf("%w: the store has dropped it", driver.ErrSessionEnded)

// life is the value of a session's key.
type life struct {
	Timeout time.Duration
	Nonce   string // because some stores ignore an unchanged value
}

// over reports whether a key has been seen unchanged for d and, if it is a
// session's, for that session's timeout.
func (s *store) over(e Entry, d time.Duration) bool {
	var v life
	since := s.learn(e)
	return json.Unmarshal(e.Value, &v) == nil && time.Since(since) >= max(v.Timeout, d)
}

// sign renews the session's key or, if end is set, removes it. A conflict may
// come from an unanswered heartbeat.
func (s *store) sign(ctx context.Context, end bool) error {
	for fresh := false; ; fresh = session.Sleep(ctx, mathrand.N(10*time.Millisecond)) {
		e, err := s.get(ctx, sessionKey(s.id), fresh)
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

func (s *store) Begin(ctx context.Context, _ time.Duration) (b session.Begun, err error) {
	if g, ok := s.kv.(Generational); ok {
		if s.generation, err = g.Generation(ctx); err != nil || s.generation.Wait > 0 {
			return s.generation.Begun, err
		}
	}
	return s.generation.Begun, s.sign(ctx, false)
}

// Beat returns zero, so that the session calls Expire at once. If it asked for
// the generation before its write, it would miss one that begins in between.
func (s *store) Beat(ctx context.Context) (time.Duration, error) {
	err := s.sign(ctx, false)
	if g, ok := s.kv.(Generational); ok {
		now, failed := g.Generation(ctx)
		if failed == nil && now.Generation != s.generation.Generation {
			failed = session.ErrLost
		}
		if err == nil || errors.Is(failed, driver.ErrLostData) {
			err = failed
		}
	}
	return 0, err
}

// End removes the session's key before the nodes, because without the key, a
// change in flight fails and cannot add another node.
func (s *store) End(ctx context.Context) (failed error) {
	defer s.kv.Close()
	if err := s.sign(ctx, true); err != nil && !errors.Is(err, driver.ErrSessionEnded) {
		return err
	}
	for _, name := range slices.Compact(slices.Sorted(maps.Values(s.open))) {
		failed = errors.Join(failed, s.keep(ctx, name, s.id, false, func(n session.Row) bool { return n.Owner != s.id }))
	}
	return failed
}

// Cancel writes each queue, so that Creates under way fail with a conflict.
func (s *store) Cancel(ctx context.Context, creates []session.Change) (failed error) {
	if err := s.sign(ctx, false); err != nil {
		return err
	}
	numbers := make(map[string][]int64)
	for _, c := range creates {
		numbers[c.Queue] = append(numbers[c.Queue], c.Number)
	}
	for name, numbers := range numbers {
		others := func(n session.Row) bool { return n.Owner != s.id || !slices.Contains(numbers, n.Number) }
		failed = errors.Join(failed, s.keep(ctx, name, s.id, true, others))
	}
	return failed
}

func (s *store) Do(ctx context.Context, c session.Change) (r session.Result, err error) {
	if c.Kind == session.Create {
		s.with(queueKey(c.Queue), func(*cached) { s.open[c.Number] = c.Queue })
	}
	var n session.Row
	own := func(n session.Row) bool { return n.Owner == s.id && n.Number == c.Number }
	q, err := s.edit(ctx, c.Queue, s.id, true, func(q *queue) (err error) {
		if c.Kind == session.Create && slices.ContainsFunc(q.Nodes, own) {
			return errMade
		}
		n, err = q.Apply(c, s.id, 0)
		return err
	})
	if err == nil && c.Kind == session.Create && s.unguarded() {
		err = s.confirm(ctx, c.Queue)
	}
	if err != nil {
		return r, err
	}
	switch c.Kind {
	case session.Create:
		n = q.Nodes[slices.IndexFunc(q.Nodes, own)]
	case session.Delete:
		s.with(queueKey(c.Queue), func(*cached) { delete(s.open, n.Number) })
	}
	r.Snapshot, r.Place = q.snapshot(), n.Place()
	if s.listens.Load() {
		r.Announced = session.Every
	}
	return r, nil
}

func (s *store) Look(ctx context.Context, ask []session.Query) (found []session.Snapshot, err error) {
	for _, of := range ask {
		e, err := s.get(ctx, queueKey(of.Queue), true)
		q, bad := decode(e)
		if err = cmp.Or(err, bad); err != nil {
			return nil, err
		}
		found = append(found, q.snapshot())
	}
	return found, nil
}

func (s *store) Walk(ctx context.Context, _ string) (queues []string, err error) {
	all, err := s.kv.Scan(ctx)
	for _, e := range all {
		name, ok := queueOf(e.Key)
		if q, err := decode(e); ok && err == nil && len(q.Nodes) > 0 {
			queues = append(queues, name)
		}
	}
	return queues, err
}

// Expire removes the nodes of ended sessions from the queues that this session
// uses. After an error, the next call does the rest.
func (s *store) Expire(ctx context.Context) (more bool, err error) {
	for id, names := range s.met() {
		if !s.ended(ctx, id) {
			continue
		}
		for _, name := range names {
			_ = s.keep(ctx, name, id, false, func(n session.Row) bool { return n.Owner != id })
		}
	}
	return false, ctx.Err()
}

// nearest is how many living sessions ahead of its own node a session checks.
// They check those ahead of them.
const nearest = 4

// met returns the sessions to check, with the queues shared with them. It also
// evicts keys that have long been unused.
func (s *store) met() map[string][]string {
	met := make(map[string][]string)
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, c := range s.cache {
		name, ok := queueOf(key)
		unused := time.Since(c.used)
		if unused > 2*tidyAfter {
			delete(s.cache, key)
		}
		if !ok || unused > s.timeout {
			continue
		}
		q, _ := decode(c.Entry)
		own, left := slices.IndexFunc(q.Nodes, func(n session.Row) bool { return n.Owner == s.id }), 0
		if own <= 0 {
			left = nearest // otherwise nobody checks the last nodes
		}
		for _, n := range slices.Backward(q.Nodes) {
			switch is := s.cache[sessionKey(n.Owner)]; {
			case n.Owner == s.id:
				left = nearest
				continue
			case n.Owner == "" || left == 0 || slices.Contains(met[n.Owner], name):
				continue
			case is != nil && time.Since(is.since) > s.timeout/4:
				left += nearest
			default:
				left--
			}
			met[n.Owner] = append(met[n.Owner], name)
		}
	}
	return met
}

// ended removes an expired session's key. In an unguarded store a deposed
// leader may answer the read, so only a write proves the end.
func (s *store) ended(ctx context.Context, id string) bool {
	e, err := s.get(ctx, sessionKey(id), true)
	if err != nil || e.Value != nil && !s.over(e, 0) {
		return false
	}
	if e.Value != nil || s.unguarded() {
		e.Value = nil
		_, err = s.write(ctx, e)
	}
	return err == nil
}

const tidyAfter = time.Hour

// Tidy removes keys that have not changed for an hour: those of expired
// sessions, and of queues without nodes and value. The first call makes no
// request, so that short sessions do not tidy.
func (s *store) Tidy(ctx context.Context) (more bool, err error) {
	if !s.tidies {
		s.tidies = true
		return false, nil
	}
	all, err := s.kv.Scan(ctx)
	for _, e := range all {
		if q, bad := decode(e); bad == nil && len(q.Nodes) == 0 && q.Setter == 0 && s.over(e, tidyAfter) {
			e.Value = nil
			_, _ = s.write(ctx, e) // after an error, the next run does it
		}
	}
	return false, err
}

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
	return session.LookAt(ctx, n, q)
}

func (n *notifier) watch(ctx context.Context) {
	listen := func(now bool) {
		n.listens.Store(now)
		n.host.Lost()
	}
	for again := true; again; again = session.Sleep(ctx, 100*time.Millisecond) {
		_ = n.watcher.Watch(ctx, "q/", func() { listen(true) }, n.changed)
		listen(false)
	}
}

// changed handles a notice. The session reads the queue at once if a watched
// node seems to be gone.
func (n *notifier) changed(e Entry) {
	n.mu.Lock()
	if c := n.cache[e.Key]; c != nil && e.Revision > c.Revision {
		c.known = false
	}
	n.mu.Unlock()
	name, _ := queueOf(e.Key)
	gone := func(node string) bool { return strings.Contains(e.Note, "/"+node+"/") }
	if e.Note == "" {
		q, _ := decode(e)
		gone = func(node string) bool {
			return !slices.ContainsFunc(q.Nodes, func(n session.Row) bool { return n.Name == node })
		}
	}
	n.host.Noticed(name, gone)
}
