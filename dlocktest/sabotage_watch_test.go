package dlocktest

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

var watchSabotages = []sabotage{
	{"waits for nodes that are gone", "etcd: a watch from now on, without a look at what is there",
		of(func(s base) blindToGone { return blindToGone{s} })},
	{"lists first and arms then", "etcd: a watch from the present revision instead of that of the List; Redis: SUBSCRIBE after the look",
		of(func(s base) lateArming { return lateArming{s} })},
	{"leaves watches open at its end", "closing the connection, and nothing else",
		of(func(s base) openAtEnd { return openAtEnd{s} })},
	{"hears only of what other drivers announce", "Redis: PUBLISH in the script that deletes, and none when a key expires; SQL: NOTIFY by the client",
		func() func(base, *memdriver.Store) driver.Session {
			all := perStore(func() *announcements { return new(announcements) })
			return func(s base, st *memdriver.Store) driver.Session { return &announced{releasing: s, told: all(st)} }
		}()},
	{"keeps one watch for each node", "a map from name to channel",
		of(func(s base) *lastWatchOnly { return &lastWatchOnly{releasing: s, last: make(map[string]*atomic.Bool)} })},
	{"ends a subscription with its first ctx", "one subscription shared by all who watch a node",
		of(func(s base) *sharedFate { return &sharedFate{releasing: s, fates: make(map[string]*fate)} })},
	{"forgets its watches when it connects again", "Redis, SQL: LISTEN and SUBSCRIBE belong to a connection",
		of(func(s base) *forgetsWatches { return &forgetsWatches{releasing: s} })},
	{"compares numbers of nodes", "polling with COUNT(*)",
		of(func(s base) *polls { return &polls{s, func(n []driver.Node, _ string) any { return len(n) }, false} })},
	{"looks now and then whether the name is there", "polling for a name, in a store where names come again",
		of(func(s base) *polls {
			return &polls{s, func(nodes []driver.Node, name string) any {
				return slices.ContainsFunc(nodes, func(n driver.Node) bool { return n.Name == name })
			}, true}
		})},
	{"sends Changed and does not close", "a channel of events, as client libraries have it",
		of(func(s base) neverCloses { return neverCloses{s} })},
}

// closedWatch is the watch of something that has ended.
func closedWatch() <-chan driver.Cause {
	w := make(chan driver.Cause)
	close(w)
	return w
}

// announcements are the ends of nodes that their sessions told of.
type announcements struct{ nodes sync.Map }

type announced struct {
	*releasing
	told *announcements
	mine sync.Map // sequence, of nodes that Close will remove
}

func (s *announced) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	p, err := s.releasing.Create(ctx, queue, prefix, data)
	s.mine.Store(sequence{queue, p.Seq, p.Epoch}, true)
	return p, err
}

func (s *announced) Delete(ctx context.Context, queue string, p driver.Place) error {
	s.told.nodes.Store(sequence{queue, p.Seq, p.Epoch}, true)
	return s.releasing.Delete(ctx, queue, p)
}

func (s *announced) Release(ctx context.Context, queue string, p driver.Place) error {
	s.told.nodes.Store(sequence{queue, p.Seq, p.Epoch}, true)
	return s.releasing.Release(ctx, queue, p)
}

func (s *announced) Replace(ctx context.Context, queue string, p driver.Place, prefix string) (driver.Place, error) {
	s.told.nodes.Store(sequence{queue, p.Seq, p.Epoch}, true)
	return s.releasing.Replace(ctx, queue, p, prefix)
}

func (s *announced) Close() error {
	s.mine.Range(func(n, _ any) bool {
		s.told.nodes.Store(n, true)
		return true
	})
	return s.releasing.Close()
}

// arm watches a node and tells which one that is. It returns no key where the channel is all there is to
// say: for a queue, a node that is not there, and an error.
func (s *announced) arm(ctx context.Context, queue, name string) (<-chan driver.Cause, sequence, error) {
	in, err := s.releasing.Watch(ctx, queue, name)
	if err != nil || name == "" {
		return in, sequence{}, err
	}
	nodes, err := s.List(ctx, queue)
	i := slices.IndexFunc(nodes, func(n driver.Node) bool { return n.Name == name })
	if err != nil || i < 0 {
		return closedWatch(), sequence{}, err
	}
	return in, sequence{queue, nodes[i].Seq, nodes[i].Epoch}, nil
}

func (s *announced) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	in, key, err := s.arm(ctx, queue, name)
	if key == (sequence{}) {
		return in, err
	}
	return s.forwards(in, func() bool {
		_, told := s.told.nodes.Load(key)
		return told
	}), nil
}

// forwards passes the end of a watch on if it is heard of; the session's end is heard of always.
func (s *releasing) forwards(in <-chan driver.Cause, heard func() bool) <-chan driver.Cause {
	out := make(chan driver.Cause, 1)
	go func() {
		cause, sent := <-in
		if !heard() && s.Err() == nil {
			<-s.Done()
		} else if sent {
			out <- cause
		}
		close(out)
	}()
	return out
}

// lastWatchOnly forgets the watch of a node when there is a newer one.
type lastWatchOnly struct {
	*releasing
	mu   sync.Mutex
	last map[string]*atomic.Bool
}

func (s *lastWatchOnly) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	in, err := s.releasing.Watch(ctx, queue, name)
	if err != nil {
		return in, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.last[queue+name]; old != nil {
		old.Store(true)
	}
	forgotten := new(atomic.Bool)
	s.last[queue+name] = forgotten
	return s.forwards(in, func() bool { return !forgotten.Load() }), nil
}

// sharedFate ends all watches of a node with the first ctx of theirs that ends.
type sharedFate struct {
	*releasing
	mu    sync.Mutex
	fates map[string]*fate
}

type fate struct{ over atomic.Bool }

func (s *sharedFate) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	in, err := s.releasing.Watch(ctx, queue, name)
	if err != nil {
		return in, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.fates[queue+name]
	if f == nil || f.over.Load() {
		f = new(fate)
		s.fates[queue+name] = f
	}
	context.AfterFunc(ctx, func() { f.over.Store(true) })
	return s.forwards(in, func() bool { return !f.over.Load() }), nil
}

// forgetsWatches misses what happens to watches that were armed before a cut.
type forgetsWatches struct {
	*releasing
	cuts atomic.Int32
}

func (s *forgetsWatches) cut(now bool) {
	if now {
		s.cuts.Add(1)
	}
}

func (s *forgetsWatches) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	armed := s.cuts.Load()
	in, err := s.releasing.Watch(ctx, queue, name)
	if err != nil {
		return in, err
	}
	return s.forwards(in, func() bool { return s.cuts.Load() == armed }), nil
}

// polls looks at a queue now and then, and compares it with what it was.
type polls struct {
	*releasing
	view  func(nodes []driver.Node, name string) any
	names bool // it does so for names, else for whole queues
}

func (s *polls) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	if s.names != (name != "") {
		return s.releasing.Watch(ctx, queue, name)
	}
	nodes, err := s.List(ctx, queue)
	if err != nil {
		return nil, err
	}
	before := s.view(nodes, name)
	if before == false {
		return closedWatch(), nil
	}
	out := make(chan driver.Cause)
	go func() {
		defer close(out)
		for s.Err() == nil && ctx.Err() == nil {
			nodes, err := s.List(ctx, queue)
			if err == nil && s.view(nodes, name) != before {
				return
			}
			time.Sleep(2 * time.Millisecond)
		}
	}()
	return out, nil
}

// neverCloses tells of the end of a watch and leaves it open.
type neverCloses struct{ *releasing }

func (s neverCloses) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	in, err := s.releasing.Watch(ctx, queue, name)
	if err != nil {
		return in, err
	}
	out := make(chan driver.Cause, 1)
	go func() { out <- <-in }()
	return out, nil
}

type blindToGone struct{ *releasing }

func (s blindToGone) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	nodes, err := s.List(ctx, queue)
	if name != "" && err == nil && !slices.ContainsFunc(nodes, func(n driver.Node) bool { return n.Name == name }) {
		return make(chan driver.Cause), nil
	}
	return s.releasing.Watch(ctx, queue, name)
}

type lateArming struct{ *releasing }

func (s lateArming) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	nodes, err := s.List(ctx, queue)
	if err != nil || name != "" && !slices.ContainsFunc(nodes, func(n driver.Node) bool { return n.Name == name }) {
		return s.releasing.Watch(ctx, queue, name)
	}
	out := make(chan driver.Cause)
	go func() {
		time.Sleep(time.Millisecond)
		if name != "" {
			nodes, _ := s.List(ctx, queue)
			if !slices.ContainsFunc(nodes, func(n driver.Node) bool { return n.Name == name }) {
				return // it went before the watch was armed: nobody tells
			}
		}
		if in, err := s.releasing.Watch(ctx, queue, name); err == nil {
			<-in
		}
		close(out)
	}()
	return out, nil
}

type openAtEnd struct{ *releasing }

func (s openAtEnd) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	in, err := s.releasing.Watch(ctx, queue, name)
	out := make(chan driver.Cause)
	go func() {
		if <-in; s.Err() == nil {
			close(out)
		}
	}()
	return out, err
}
