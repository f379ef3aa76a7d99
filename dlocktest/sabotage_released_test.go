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

var releasedSabotages = []sabotage{
	{"sends Released for every Delete", "one request for both causes",
		of(func(s base) releasesAll { return releasesAll{s} })},
	{"sends Released for nodes that Close removes", "one function for Unlock and Close",
		of(func(s base) *releasesAtEnd { return &releasesAtEnd{placing{base: s}, true} })},
	{"sends Released for nodes that expire", "a trigger on deletion, or a message when a key expires, that is taken for a release",
		of(func(s base) *releasesAtEnd { return &releasesAtEnd{placing{base: s}, false} })},
	{"takes the end of a watch without a message for a release", "concluding from a missing message: an operator's removal looks the same",
		func() wrap {
			all := perStore(func() *announcements { return new(announcements) })
			return func(s base, st *memdriver.Store) driver.Session {
				return &guesses{announced{base: unarmed{s}, told: all(st)}}
			}
		}()},
	{"takes a missing node for a released one", "a watch that is armed after the release",
		of(func(s base) guessesGone { return guessesGone{unarmed{s}} })},
	{"remembers releases by name", "a table of names, in a store where names come again",
		func() wrap {
			names := perStore(func() *sync.Map { return new(sync.Map) })
			return func(s base, st *memdriver.Store) driver.Session { return releasesNames{unarmed{s}, names(st)} }
		}()},
	{"sends Released for the own node", "one message for all watches of a node, also for those of its owner",
		of(func(s base) *tellsOwn { return &tellsOwn{base: unarmed{s}} })},
	{"sends Released to watches of the queue", "one message for all watches",
		func() wrap {
			releases := perStore(func() *atomic.Int64 { return new(atomic.Int64) })
			return func(s base, st *memdriver.Store) driver.Session { return tellsQueue{s, releases(st)} }
		}()},
	{"sends Released before the end of the own node", "one subscription for each node: their messages arrive in any order",
		overtaking(func(*overtaken, driver.Place) bool { return true })},
	{"sends Released without knowing what operators removed", "Redis, SQL: no session gets a message of a removal by an operator",
		overtaking(func(s *overtaken, p driver.Place) bool {
			_, own := s.deleted.Load(p)
			return !own && s.Err() == nil
		})},
	{"sends Released without knowing of its own expiry", "the store ends a session, and the process learns of it with the next heartbeat",
		overtaking(func(s *overtaken, _ driver.Place) bool { return s.Err() != nil })},
	{"forgets the own node after Released", "a subscription that ends with its first message",
		of(func(s base) forgetsOwn { return forgetsOwn{unarmed{s}} })},
	{"sends Released for each node", "a message for each release, passed on as it comes",
		of(func(s base) goesOnForAll { return goesOnForAll{unarmed{s}} })},
	{"announces a release before List shows it", "Redis: PUBLISH and DEL as two commands; a list from a replica that lags",
		func() wrap {
			old := perStore(func() *sync.Map { return new(sync.Map) })
			return func(s base, st *memdriver.Store) driver.Session { return listsReleased{s, old(st)} }
		}()},
}

type releasesAll struct{ base }

func (s releasesAll) Delete(ctx context.Context, queue string, p driver.Place, _ driver.Cause) error {
	return s.base.Delete(ctx, queue, p, driver.Released)
}

type releasesAtEnd struct {
	placing
	atClose bool
}

func (s *releasesAtEnd) releaseAll() {
	s.places.each(func(queue string, p driver.Place) {
		_ = s.Delete(context.Background(), queue, p, driver.Released)
	})
}

func (s *releasesAtEnd) expiring() {
	if !s.atClose {
		s.releaseAll()
	}
}

func (s *releasesAtEnd) Close() error {
	if s.atClose && s.Err() == nil {
		s.releaseAll()
	}
	return s.base.Close()
}

// guesses is a session whose watches send Released for every removal that no
// session has announced.
type guesses struct{ announced }

func (s *guesses) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	w, err := s.base.Watch(ctx, queue, p, ahead...)
	return judged(s, w, func() bool { return len(ahead) > 0 && !s.toldOf(queue, p, ahead) }), err
}

type guessesGone struct{ base }

func (s guessesGone) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	for _, n := range ahead {
		if there(s, queue, p.Name) && !there(s, queue, n.Name) {
			c := make(chan driver.Cause, 1)
			c <- driver.Released
			close(c)
			return driver.NewWatch(c, nil), nil
		}
	}
	return s.base.Watch(ctx, queue, p, ahead...)
}

type releasesNames struct {
	base
	names *sync.Map
}

func (s releasesNames) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	if why == driver.Released {
		s.names.Store(queue+"/"+p.Name, true)
	}
	return s.base.Delete(ctx, queue, p, why)
}

func (s releasesNames) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	w, err := s.base.Watch(ctx, queue, p, ahead...)
	return judged(s, w, func() bool {
		for _, n := range ahead {
			if _, given := s.names.Load(queue + "/" + n.Name); given && !there(s, queue, n.Name) {
				return true
			}
		}
		return false
	}), err
}

// tellsOwn is a session that sends Released not only to the watches behind the
// released node, but also to the watch of that node itself.
type tellsOwn struct {
	base
	released sync.Map
}

func (s *tellsOwn) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	if why == driver.Released {
		s.released.Store(p, true)
	}
	return s.base.Delete(ctx, queue, p, why)
}

func (s *tellsOwn) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	w, err := s.base.Watch(ctx, queue, p, ahead...)
	return judged(s, w, func() bool {
		_, released := s.released.Load(p)
		return released
	}), err
}

type tellsQueue struct {
	base
	releases *atomic.Int64
}

func (s tellsQueue) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	if why == driver.Released {
		s.releases.Add(1)
	}
	return s.base.Delete(ctx, queue, p, why)
}

func (s tellsQueue) WatchQueue(ctx context.Context, queue string) (driver.Watch, error) {
	before := s.releases.Load()
	w, err := s.base.WatchQueue(ctx, queue)
	return judged(s, w, func() bool { return s.releases.Load() != before }), err
}

// overtaken is a session whose watches may send Released after their own node
// is gone.
type overtaken struct {
	base
	releases *sync.Map
	deleted  sync.Map
	fails    func(s *overtaken, p driver.Place) bool
}

func overtaking(fails func(s *overtaken, p driver.Place) bool) wrap {
	releases := perStore(func() *sync.Map { return new(sync.Map) })
	return func(s base, st *memdriver.Store) driver.Session {
		return &overtaken{base: unarmed{s}, releases: releases(st), fails: fails}
	}
}

func (s *overtaken) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	s.deleted.Store(p, true)
	if why == driver.Released {
		s.releases.Store(p.Node, true)
	}
	return s.base.Delete(ctx, queue, p, why)
}

func (s *overtaken) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	w, err := s.base.Watch(ctx, queue, p, ahead...)
	if err != nil || len(ahead) == 0 || !there(s, queue, p.Name) {
		return w, err
	}
	said := false
	return relay(w, func(cause driver.Cause, open bool, out chan<- driver.Cause) {
		if said = said || open; !open && !said && !there(s, queue, p.Name) && s.fails(s, p) && s.hearsOf(ahead[0]) {
			out <- driver.Released
			time.Sleep(20 * time.Millisecond)
		}
		pass(cause, open, out)
	}), nil
}

// hearsOf waits up to about 40 ms for the node to be released, and reports
// whether it was.
func (s *overtaken) hearsOf(n driver.Node) bool {
	for range 40 {
		if _, released := s.releases.Load(n); released {
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return false
}

type forgetsOwn struct{ base }

func (s forgetsOwn) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	w, err := s.base.Watch(ctx, queue, p, ahead...)
	said := false
	return relay(w, func(cause driver.Cause, open bool, out chan<- driver.Cause) {
		if said = said || open; open || !said {
			pass(cause, open, out)
		}
	}), err
}

// goesOnForAll is a session that keeps watching the remaining nodes ahead after
// one of them sent Released.
type goesOnForAll struct{ base }

func (s goesOnForAll) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	if len(ahead) < 2 {
		return s.base.Watch(ctx, queue, p, ahead...)
	}
	var mu sync.Mutex
	over := false
	out := make(chan driver.Cause, len(ahead))
	var watches []driver.Watch
	for _, n := range ahead {
		w, err := s.base.Watch(ctx, queue, p, n)
		if err != nil {
			return driver.Watch{}, err
		}
		watches = append(watches, relay(w, func(cause driver.Cause, open bool, _ chan<- driver.Cause) {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case over:
			case !open:
				over = true
				close(out)
			default:
				out <- cause
			}
		}))
	}
	return driver.NewWatch(out, func() {
		for _, w := range watches {
			w.Stop()
		}
	}), nil
}

type listsReleased struct {
	base
	old *sync.Map // by queue, its nodes before the latest release, for a millisecond
}

func (s listsReleased) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	if why == driver.Released {
		nodes, _ := s.base.List(ctx, queue)
		s.old.Store(queue, nodes)
		time.AfterFunc(time.Millisecond, func() { s.old.Delete(queue) })
	}
	return s.base.Delete(ctx, queue, p, why)
}

func (s listsReleased) List(ctx context.Context, queue string) ([]driver.Node, error) {
	if old, lags := s.old.Load(queue); lags {
		return slices.Clone(old.([]driver.Node)), nil
	}
	return s.base.List(ctx, queue)
}
