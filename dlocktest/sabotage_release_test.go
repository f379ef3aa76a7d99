package dlocktest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

var releaseSabotages = []sabotage{
	{"releases what it deletes", "one request for both",
		of(func(s base) releasesAll { return releasesAll{s} })},
	{"releases at Close", "giving everything back in one way",
		of(func(s base) *releasesAtClose { return &releasesAtClose{releasing: s} })},
	{"releases what expires", "a trigger on deletion, or a message when a key expires, that is taken for a release",
		of(func(s base) *releasesAtExpiry { return &releasesAtExpiry{releasing: s} })},
	{"takes an end that nobody announced for a release", "guessing from what is missing: an operator's removal looks the same",
		func() func(base, *memdriver.Store) driver.Session {
			all := perStore(func() *announcements { return new(announcements) })
			return func(s base, st *memdriver.Store) driver.Session {
				return &guesses{announced{releasing: s, told: all(st)}}
			}
		}()},
	{"takes what is not there for released", "a watch that is armed too late, and a guess",
		of(func(s base) guessesGone { return guessesGone{s} })},
	{"remembers releases by name", "a table of names, in a store where names come again",
		func() func(base, *memdriver.Store) driver.Session {
			names := perStore(func() *sync.Map { return new(sync.Map) })
			return func(s base, st *memdriver.Store) driver.Session { return releasesNames{s, names(st)} }
		}()},
	{"releases out of order", "one subscription for each watch: what they tell arrives in any order",
		of(func(s base) outOfOrder { return outOfOrder{s} })},
	{"watches a place by its name", "WatchPlace written as Watch: names come again",
		of(func(s base) placesByName { return placesByName{s} })},
	{"takes a watch that is there for that of the place", "one watch for each name, shared by all, without a look at whose node it is",
		of(func(s base) *sharesPlaces { return &sharesPlaces{releasing: s} })},
	{"does not see that a place is gone", "the look at the node after its watch is armed, left out",
		of(func(s base) blindToPlaces { return blindToPlaces{s} })},
}

type placesByName struct{ *releasing }

func (s placesByName) WatchPlace(ctx context.Context, queue string, p driver.Place) (<-chan driver.Cause, error) {
	return s.Watch(ctx, queue, p.Name)
}

type sharesPlaces struct {
	*releasing
	names sync.Map
}

func (s *sharesPlaces) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	s.names.Store(queue+"/"+name, true)
	return s.releasing.Watch(ctx, queue, name)
}

func (s *sharesPlaces) WatchPlace(ctx context.Context, queue string, p driver.Place) (<-chan driver.Cause, error) {
	if _, there := s.names.Load(queue + "/" + p.Name); there {
		return s.releasing.Watch(ctx, queue, p.Name)
	}
	return s.releasing.WatchPlace(ctx, queue, p)
}

type blindToPlaces struct{ *releasing }

func (s blindToPlaces) WatchPlace(ctx context.Context, queue string, p driver.Place) (<-chan driver.Cause, error) {
	nodes, err := s.List(ctx, queue)
	if err != nil || has(nodes, p.Node) {
		return s.releasing.WatchPlace(ctx, queue, p)
	}
	return make(chan driver.Cause), nil
}

// releasesAtExpiry lets the expiry of a session look like a release.
type releasesAtExpiry struct {
	*releasing
	places places
}

func (s *releasesAtExpiry) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	p, err := s.releasing.Create(ctx, queue, prefix, data)
	s.places.add(queue, p)
	return p, err
}

func (s *releasesAtExpiry) expiring() {
	s.places.each(func(queue string, p driver.Place) { s.given.set(released{queue, p.Seq, p.Epoch}, true) })
}

// guesses says Released where no session has announced the end of a node.
type guesses struct{ announced }

func (s *guesses) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	in, key, err := s.arm(ctx, queue, name)
	if key == (sequence{}) {
		return in, err
	}
	return s.judged(in, func() bool {
		_, told := s.told.nodes.Load(key)
		return !told && ctx.Err() == nil
	}), nil
}

// judged passes the end of a watch on, as a release where that is so.
func (s *releasing) judged(in <-chan driver.Cause, isRelease func() bool) <-chan driver.Cause {
	out := make(chan driver.Cause, 1)
	go func() {
		if cause := <-in; cause == driver.Released || s.Err() == nil && isRelease() {
			out <- driver.Released
		}
		close(out)
	}()
	return out
}

type guessesGone struct{ *releasing }

func (s guessesGone) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	nodes, err := s.List(ctx, queue)
	if err != nil || name == "" || slices.ContainsFunc(nodes, func(n driver.Node) bool { return n.Name == name }) {
		return s.releasing.Watch(ctx, queue, name)
	}
	out := make(chan driver.Cause, 1)
	out <- driver.Released
	close(out)
	return out, nil
}

type releasesNames struct {
	*releasing
	names *sync.Map
}

func (s releasesNames) Release(ctx context.Context, queue string, p driver.Place) error {
	s.names.Store(queue+"/"+p.Name, true)
	return s.releasing.Release(ctx, queue, p)
}

func (s releasesNames) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	in, err := s.releasing.Watch(ctx, queue, name)
	if err != nil || name == "" {
		return in, err
	}
	return s.judged(in, func() bool {
		_, given := s.names.Load(queue + "/" + name)
		return given && ctx.Err() == nil
	}), nil
}

type releasesAll struct{ *releasing }

func (s releasesAll) Delete(ctx context.Context, queue string, p driver.Place) error {
	s.given.set(released{queue, p.Seq, p.Epoch}, true)
	return s.releasing.Delete(ctx, queue, p)
}

type releasesAtClose struct {
	*releasing
	mu     sync.Mutex
	places []driver.Place
}

func (s *releasesAtClose) Create(ctx context.Context, queue, prefix string, data []byte) (driver.Place, error) {
	p, err := s.releasing.Create(ctx, queue, prefix, data)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.places = append(s.places, p)
	return p, err
}

func (s *releasesAtClose) Close() error {
	s.mu.Lock()
	for _, p := range s.places {
		s.given.set(released{"q", p.Seq, p.Epoch}, true)
	}
	s.mu.Unlock()
	return s.releasing.Close()
}

type outOfOrder struct{ *releasing }

func (s outOfOrder) Watch(ctx context.Context, queue, name string) (<-chan driver.Cause, error) {
	in, err := s.releasing.Watch(ctx, queue, name)
	if _, seq, _ := driver.ParseName(name); err != nil || seq%2 == 0 {
		return in, err
	}
	out := make(chan driver.Cause, 1)
	go func() {
		cause, ok := <-in
		time.Sleep(5 * time.Millisecond)
		if ok {
			out <- cause
		}
		close(out)
	}()
	return out, nil
}
