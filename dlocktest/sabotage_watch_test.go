package dlocktest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/watches"
	"github.com/dlock-go/dlock/memdriver"
)

var watchSabotages = []sabotage{
	{"watches a node that is gone already, and does not end the watch", "etcd: a watch from now on, without a look at what is there",
		of(func(s base) blindToGone { return blindToGone{unarmed{s}} })},
	{"lists first, and arms the watch after that", "etcd: a watch from the present revision instead of that of the List; Redis: SUBSCRIBE after the look",
		of(func(s base) lateArming { return lateArming{unarmed{s}} })},
	{"watches the nodes ahead and forgets its own", "a Watch that was written for the predecessor",
		of(func(s base) forgetsSome { return forgetsSome{unarmed{s}, -1} })},
	{"watches the first of several nodes only", "a loop that ends too early",
		of(func(s base) forgetsSome { return forgetsSome{unarmed{s}, 1} })},
	{"does not see that its own node is gone", "no look at the node after its watch is armed",
		of(func(s base) blindToOwn { return blindToOwn{unarmed{s}} })},
	{"watches its own node by the name alone", "a table of names, in a store where names come again",
		of(func(s base) placesByName { return placesByName{unarmed{s}} })},
	{"watches no node that is known by name only", "looking for the node by its token",
		of(func(s base) needsToken { return needsToken{unarmed{s}} })},
	{"watches only its own nodes by name", "looking for the node among those that the session has made",
		of(func(s base) *ownOnly { return &ownOnly{base: unarmed{s}} })},
	{"takes another session's node for one that is gone", "a Watch that looks first whether the session still has the node",
		of(func(s base) *ownOnly { return &ownOnly{base: unarmed{s}, ends: true} })},
	{"leaves its watches open when the session ends", "closing the connection, and nothing else",
		of(func(s base) openAtEnd { return openAtEnd{s} })},
	{"learns only of removals that drivers announce", "Redis: PUBLISH in the script that deletes, and none when a key expires; SQL: NOTIFY by the client",
		func() wrap {
			all := perStore(func() *announcements { return new(announcements) })
			return func(s base, st *memdriver.Store) driver.Session { return &announced{base: unarmed{s}, told: all(st)} }
		}()},
	{"keeps only one watch for each node", "a map from name to channel",
		of(func(s base) *lastWatchOnly {
			return &lastWatchOnly{base: unarmed{s}, last: make(map[string]*atomic.Bool)}
		})},
	{"forgets a watch when the ctx of its call ends", "one goroutine for each watch, which waits for the event or for ctx",
		of(func(s base) endsWithCtx { return endsWithCtx{s} })},
	{"stops all watches of a node when one of them is stopped", "one subscription shared by all watches of a node, and no count of them",
		of(func(s base) *sharedFate { return &sharedFate{base: unarmed{s}, fates: make(map[string]*atomic.Bool)} })},
	{"panics if a watch is stopped twice", "close of a channel, without sync.Once",
		of(func(s base) stopsOnce { return stopsOnce{unarmed{s}} })},
	{"waits for the store in Stop", "UNSUBSCRIBE, and waiting for its answer",
		of(func(s base) *asksInStop { return &asksInStop{base: unarmed{s}} })},
	{"loses its watches when it is cut off", "Redis, SQL: messages are lost meanwhile",
		of(func(s base) *forgetsWatches { return &forgetsWatches{base: unarmed{s}, atCut: true} })},
	{"loses its watches when its connection is reset", "Redis, SQL: LISTEN and SUBSCRIBE belong to a connection",
		of(func(s base) *forgetsWatches { return &forgetsWatches{base: unarmed{s}} })},
	{"trusts a connection that has fallen silent", "Redis, SQL: SUBSCRIBE and LISTEN, and neither a heartbeat on that connection nor a look now and then",
		of(func(s base) *trustsSilence { return &trustsSilence{base: unarmed{s}} })},
	{"misses the end of a node that it does not know from a notice", "etcd: after a silence, a list is compared with a copy of the queue, which lacks the nodes that came meanwhile",
		of(func(s base) *trustsCopy { return &trustsCopy{base: s} })},
	{"compares only how many nodes the queue has", "polling with COUNT(*)",
		pollingQueues(func(_ int64, nodes []driver.Node) string { return fmt.Sprint(len(nodes)) })},
	{"makes the version of a queue from its latest token and its nodes", "polling: a node that is replaced and replaced back leaves no trace in either",
		pollingQueues(func(latest int64, nodes []driver.Node) string { return fmt.Sprint(latest, nodes) })},
	{"does not see its own changes while no other session lives", "SQLite: PRAGMA data_version does not change with the commits of the same connection",
		func() wrap {
			live := perStore(func() *atomic.Int64 { return new(atomic.Int64) })
			return func(s base, st *memdriver.Store) driver.Session {
				live(st).Add(1)
				return &seesOthers{s, live(st)}
			}
		}()},
	{"looks only whether the name is in the queue", "polling in a store where names come again",
		of(func(s base) pollsNames { return pollsNames{unarmed{s}} })},
	{"sends Changed and does not close", "a channel of events, as client libraries have it",
		of(func(s base) neverCloses { return neverCloses{unarmed{s}} })},
}

// announcements records nodes whose sessions announced that they would remove
// or replace them. Operators and expiring sessions announce nothing.
type announcements struct{ nodes sync.Map }

type announced struct {
	base
	told *announcements
	mine sync.Map // the session's nodes, which Close announces
}

type sequence struct {
	queue      string
	seq, epoch int64
}

func sequenceOf(queue string, n driver.Node) sequence { return sequence{queue, n.Seq, n.Epoch} }

func (s *announced) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.base.Create(ctx, queue, n)
	s.mine.Store(sequenceOf(queue, j.Node), true)
	return j, err
}

func (s *announced) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	s.told.nodes.Store(sequenceOf(queue, p.Node), true)
	return s.base.Delete(ctx, queue, p, why)
}

func (s *announced) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	s.told.nodes.Store(sequenceOf(queue, p.Node), true)
	return s.base.Replace(ctx, queue, p, prefix)
}

func (s *announced) Close() error {
	s.mine.Range(func(n, _ any) bool {
		s.told.nodes.Store(n, true)
		return true
	})
	return s.base.Close()
}

// toldOf reports whether a session announced that it would remove or replace
// any of these nodes.
func (s *announced) toldOf(queue string, p driver.Place, ahead []driver.Node) bool {
	return slices.ContainsFunc(append([]driver.Node{p.Node}, ahead...), func(n driver.Node) bool {
		_, told := s.told.nodes.Load(sequenceOf(queue, n))
		return told
	})
}

func (s *announced) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	w, err := s.base.Watch(ctx, queue, p, ahead...)
	if err != nil || !there(s, queue, p.Name) || slices.ContainsFunc(ahead, func(n driver.Node) bool { return !there(s, queue, n.Name) }) {
		return w, err
	}
	return passIf(s, w, func() bool { return s.toldOf(queue, p, ahead) }), nil
}

// forgetsSome is a session whose watches omit some nodes. They omit the
// waiter's own node if from is negative, and otherwise ahead[from:].
type forgetsSome struct {
	base
	from int
}

func (s forgetsSome) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	if s.from >= 0 {
		return s.base.Watch(ctx, queue, p, ahead[:min(s.from, len(ahead))]...)
	}
	w, err := s.base.Watch(ctx, queue, p, ahead...)
	if err != nil || len(ahead) == 0 || !there(s, queue, p.Name) {
		return w, err
	}
	said := false
	return relay(w, func(cause driver.Cause, open bool, out chan<- driver.Cause) {
		said = said || open
		if gone := slices.ContainsFunc(ahead, func(n driver.Node) bool { return !there(s, queue, n.Name) }); said || gone || s.Err() != nil {
			pass(cause, open, out)
		}
	}), nil
}

type blindToOwn struct{ base }

func (s blindToOwn) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	w, err := s.base.Watch(ctx, queue, p, ahead...)
	if err == nil && hasNews(w.C) && s.Err() == nil {
		return openWatch(), nil
	}
	return w, err
}

type placesByName struct{ base }

func (s placesByName) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	return s.base.Watch(ctx, queue, named(p), ahead...)
}

type needsToken struct{ base }

func (s needsToken) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	w, err := s.base.Watch(ctx, queue, p, ahead...)
	if p.Token == 0 && err == nil && !hasNews(w.C) {
		return passIf(s, w, func() bool { return false }), nil
	}
	return w, err
}

// ownOnly is a session that can watch only its own nodes. If asked to watch the
// node of another session by name, it returns a watch that never ends or, if
// ends is set, has already ended.
type ownOnly struct {
	base
	ends bool
	mine sync.Map // by sequence
}

func (s *ownOnly) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.base.Create(ctx, queue, n)
	s.mine.Store(sequenceOf(queue, j.Node), true)
	return j, err
}

func (s *ownOnly) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	w, err := s.base.Watch(ctx, queue, p, ahead...)
	if _, mine := s.mine.Load(sequenceOf(queue, p.Node)); mine || err != nil || p.Token != 0 || hasNews(w.C) {
		return w, err
	}
	if s.ends {
		w.Stop()
		return watches.Ended(), nil
	}
	return passIf(s, w, func() bool { return false }), nil
}

// lastWatchOnly is a session that drops a watch when a newer one of the same
// node or queue is armed.
type lastWatchOnly struct {
	base
	mu   sync.Mutex
	last map[string]*atomic.Bool
}

func (s *lastWatchOnly) only(key string, w driver.Watch) driver.Watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.last[key]; old != nil {
		old.Store(true)
	}
	forgotten := new(atomic.Bool)
	s.last[key] = forgotten
	return passIf(s, w, func() bool { return !forgotten.Load() })
}

func (s *lastWatchOnly) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	w, err := s.base.Watch(ctx, queue, p, ahead...)
	if err != nil || !there(s, queue, p.Name) {
		return w, err
	}
	return s.only(queue+"/"+p.Name, w), nil
}

func (s *lastWatchOnly) WatchQueue(ctx context.Context, queue string) (driver.Watch, error) {
	w, err := s.base.WatchQueue(ctx, queue)
	return s.only(queue, w), err
}

// endsWithCtx is a session whose watches report nothing once the ctx of the call
// that armed them has ended.
type endsWithCtx struct{ base }

func (s endsWithCtx) until(ctx context.Context, w driver.Watch) driver.Watch {
	return passIf(s, w, func() bool { return ctx.Err() == nil })
}

func (s endsWithCtx) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.base.Create(ctx, queue, n)
	j.Watch = s.until(ctx, j.Watch)
	return j, err
}

func (s endsWithCtx) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	w, err := s.base.Watch(ctx, queue, p, ahead...)
	return s.until(ctx, w), err
}

func (s endsWithCtx) WatchQueue(ctx context.Context, queue string) (driver.Watch, error) {
	w, err := s.base.WatchQueue(ctx, queue)
	return s.until(ctx, w), err
}

// sharedFate is a session in which stopping one watch of a node ahead stops all
// watches of that node.
type sharedFate struct {
	base
	mu    sync.Mutex
	fates map[string]*atomic.Bool
}

func (s *sharedFate) share(key string, w driver.Watch) driver.Watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	over := s.fates[key]
	if over == nil || over.Load() {
		over = new(atomic.Bool)
		s.fates[key] = over
	}
	in := passIf(s, w, func() bool { return !over.Load() })
	return driver.NewWatch(in.C, func() {
		over.Store(true)
		in.Stop()
	})
}

func (s *sharedFate) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	w, err := s.base.Watch(ctx, queue, p, ahead...)
	if err != nil || len(ahead) == 0 {
		return w, err
	}
	return s.share(queue+"/"+ahead[0].Name, w), nil
}

func (s *sharedFate) WatchQueue(ctx context.Context, queue string) (driver.Watch, error) {
	w, err := s.base.WatchQueue(ctx, queue)
	if err != nil {
		return w, err
	}
	return s.share(queue, w), nil
}

// stopsOnce is a session whose watches hang when stopped twice. A real driver
// would rather panic, but that would end the kit.
type stopsOnce struct{ base }

func (s stopsOnce) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	w, err := s.base.Watch(ctx, queue, p, ahead...)
	if err != nil {
		return w, err
	}
	var stopped atomic.Bool
	return driver.NewWatch(w.C, func() {
		if stopped.Swap(true) {
			select {}
		}
		w.Stop()
	}), nil
}

// asksInStop is a session whose watches cannot be stopped while it is cut off:
// Stop waits for the store.
type asksInStop struct {
	base
	cutState
}

func (s *asksInStop) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	w, err := s.base.Watch(ctx, queue, p, ahead...)
	if err != nil {
		return w, err
	}
	return driver.NewWatch(w.C, func() {
		select {
		case <-s.healed():
		case <-s.Done():
		}
		w.Stop()
	}), nil
}

// forgetsWatches is a session whose watches no longer report anything after a
// cut or a reset of its connection.
type forgetsWatches struct {
	base
	atCut  bool
	breaks atomic.Int32
}

func (s *forgetsWatches) cut(now bool) {
	if s.atCut && now {
		s.breaks.Add(1)
	}
}

func (s *forgetsWatches) reset() {
	if !s.atCut {
		s.breaks.Add(1)
	}
}

func (s *forgetsWatches) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	armed := s.breaks.Load()
	w, err := s.base.Watch(ctx, queue, p, ahead...)
	return passIf(s, w, func() bool { return s.breaks.Load() == armed }), err
}

// trustsSilence is a session that misses all changes while no notices reach it.
type trustsSilence struct {
	base
	silent atomic.Bool
}

func (s *trustsSilence) silenced() { s.silent.Store(true) }

func (s *trustsSilence) heard() bool { return !s.silent.Load() }

func (s *trustsSilence) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	w, err := s.base.Watch(ctx, queue, p, ahead...)
	return passIf(s, w, s.heard), err
}

func (s *trustsSilence) WatchQueue(ctx context.Context, queue string) (driver.Watch, error) {
	w, err := s.base.WatchQueue(ctx, queue)
	return passIf(s, w, s.heard), err
}

// trustsCopy is a session that notices changes even if no notice reached it,
// except for nodes that it knows only from a watch armed by Create.
type trustsCopy struct {
	base
	silent atomic.Bool
}

func (s *trustsCopy) silenced() { s.silent.Store(true) }

func (s *trustsCopy) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	unknown := s.silent.Load()
	j, err := s.base.Create(ctx, queue, n)
	j.Watch = passIf(s, j.Watch, func() bool { return !unknown })
	return j, err
}

// pollsQueues is a session that watches a queue by polling it, and compares
// only a version computed from the list.
type pollsQueues struct {
	base
	latest  *atomic.Int64
	version func(latest int64, nodes []driver.Node) string
}

func pollingQueues(version func(latest int64, nodes []driver.Node) string) wrap {
	latest := perStore(func() *atomic.Int64 { return new(atomic.Int64) })
	return func(s base, st *memdriver.Store) driver.Session { return &pollsQueues{s, latest(st), version} }
}

func (s *pollsQueues) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.base.Create(ctx, queue, n)
	raise(s.latest, j.Token)
	return j, err
}

func (s *pollsQueues) WatchQueue(ctx context.Context, queue string) (driver.Watch, error) {
	list := func(ctx context.Context) (version string, err error) {
		nodes, err := s.List(ctx, queue)
		return s.version(s.latest.Load(), nodes), err
	}
	armed, err := list(ctx)
	if err != nil {
		return driver.Watch{}, err
	}
	return poll(s, func() bool {
		now, err := list(context.Background())
		return err == nil && now != armed
	}), nil
}

// seesOthers is a session that misses changes of a watched queue while it is
// the store's only session.
type seesOthers struct {
	base
	live *atomic.Int64
}

func (s *seesOthers) WatchQueue(ctx context.Context, queue string) (driver.Watch, error) {
	w, err := s.base.WatchQueue(ctx, queue)
	if err != nil || s.live.Load() > 1 {
		return w, err
	}
	w.Stop()
	return poll(s.base, func() bool { return false }), nil
}

func (s *seesOthers) Close() error {
	s.live.Add(-1)
	return s.base.Close()
}

type pollsNames struct{ base }

func (s pollsNames) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	if err := driver.CheckQueue(queue); err != nil {
		return driver.Watch{}, err
	}
	nodes, err := s.List(ctx, queue)
	if err != nil {
		return driver.Watch{}, err
	}
	if p.Token != 0 && !has(nodes, p.Node) {
		return closedWatch(), nil
	}
	missing := func() bool {
		for _, n := range append([]driver.Node{p.Node}, ahead...) {
			if !there(s, queue, n.Name) {
				return true
			}
		}
		return false
	}
	if missing() {
		return closedWatch(), nil
	}
	return poll(s, missing), nil
}

// poll returns a watch that ends when over returns true, or when its session
// ends.
func poll(s base, over func() bool) driver.Watch {
	out, quit := make(chan driver.Cause), make(chan struct{})
	go func() {
		defer close(out)
		for s.Err() == nil && !over() {
			select {
			case <-quit:
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	return driver.NewWatch(out, sync.OnceFunc(func() { close(quit) }))
}

// neverCloses is a session whose watches send Changed at their end instead of
// closing the channel.
type neverCloses struct{ base }

func (s neverCloses) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	w, err := s.base.Watch(ctx, queue, p, ahead...)
	return relay(w, func(cause driver.Cause, _ bool, out chan<- driver.Cause) { out <- cause }), err
}

type blindToGone struct{ base }

func (s blindToGone) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	standing := slices.DeleteFunc(slices.Clone(ahead), func(n driver.Node) bool { return !there(s, queue, n.Name) })
	return s.base.Watch(ctx, queue, p, standing...)
}

type lateArming struct{ base }

func (s lateArming) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	w, err := s.base.Watch(ctx, queue, p, ahead...)
	if err != nil || hasNews(w.C) {
		return w, err
	}
	w.Stop()
	out, quit := make(chan driver.Cause, 2), make(chan struct{})
	go func() {
		time.Sleep(time.Millisecond)
		nodes := append([]driver.Node{p.Node}, ahead...)
		if slices.ContainsFunc(nodes, func(n driver.Node) bool { return !there(s, queue, n.Name) }) && s.Err() == nil {
			return
		}
		if w, err := s.base.Watch(context.Background(), queue, p, ahead...); err == nil {
			for {
				select {
				case cause, open := <-w.C:
					if !open {
						close(out)
						return
					}
					out <- cause
				case <-quit:
					w.Stop()
					return
				}
			}
		}
		close(out)
	}()
	return driver.NewWatch(out, sync.OnceFunc(func() { close(quit) })), nil
}

type openAtEnd struct{ base }

func (s openAtEnd) left(w driver.Watch) driver.Watch {
	return relay(w, func(cause driver.Cause, open bool, out chan<- driver.Cause) {
		if open || s.Err() == nil {
			pass(cause, open, out)
		}
	})
}

func (s openAtEnd) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.base.Create(ctx, queue, n)
	j.Watch = s.left(j.Watch)
	return j, err
}

func (s openAtEnd) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	w, err := s.base.Watch(ctx, queue, p, ahead...)
	return s.left(w), err
}

func (s openAtEnd) WatchQueue(ctx context.Context, queue string) (driver.Watch, error) {
	w, err := s.base.WatchQueue(ctx, queue)
	return s.left(w), err
}
