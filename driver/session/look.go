package session

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/watches"
)

// looks holds the snapshots of watched queues that Store.Look returned last.
type looks struct {
	woken  chan struct{} // receives after a watch was armed
	called chan struct{} // receives if queues must be looked at now

	mu    sync.Mutex
	known map[string]Snapshot
	due   map[string]bool // queues that must be looked at now
}

func (l *looks) init() {
	l.woken, l.called = make(chan struct{}, 1), make(chan struct{}, 1)
	l.known, l.due = make(map[string]Snapshot), make(map[string]bool)
}

// wake makes the session poll soon.
func (l *looks) wake() { poke(l.woken) }

// now makes the session look at queues immediately.
func (l *looks) now(queues ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, queue := range queues {
		l.due[queue] = true
	}
	poke(l.called)
}

func (l *looks) take(watched []string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer clear(l.due)
	return slices.DeleteFunc(watched, func(queue string) bool { return !l.due[queue] })
}

func (l *looks) ahead(queue string, of driver.Node) (n int, pause time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, node := range l.known[queue].Nodes {
		if _, seq, ok := driver.ParseName(node.Name); ok && seq < of.Seq {
			n++
		}
	}
	return n, l.known[queue].Pause
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// look compares the watches with the store until the session ends, at once
// after a call of looks.now, and otherwise after a pause.
func (s *Session) look() {
	defer s.watches.End()
	pause, changed := s.config.Shortest, time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var due, began time.Time // next poll of all queues; latest poll's start
	for {
		far, await := s.turn()
		next := time.Now().Add(max(s.pause(pause), far))
		if pause > s.config.Shortest {
			await = Query{}
		} else if await.Await != "" {
			next = began.Add(pause)
		}
		// A new watch must not postpone the next poll.
		if due.IsZero() || next.Before(due) {
			due = next
		}
		timer.Reset(time.Until(due))
		called := false
		select {
		case <-s.lease.Done():
			return
		case <-s.looks.woken:
			pause, changed = s.config.Shortest, time.Now()
			continue
		case <-s.looks.called:
			called, await = true, Query{}
		case <-timer.C:
		}
		began = time.Now()
		queues := s.watches.Queues()
		all := len(queues)
		if called {
			queues = s.looks.take(queues)
		}
		if quiet := pause == s.config.Longest; quiet { // one more request hardly matters now
			s.subscribeAgain()
		}
		if s.lookAt(queues, await) {
			changed = time.Now()
		}
		pause = max(s.config.Shortest, time.Since(changed)/8)
		if await.Await == "" { // spare a busy store
			pause = max(pause, 2*time.Since(began))
		}
		pause = min(pause, s.config.Longest)
		if len(queues) == all {
			due = time.Time{}
		}
	}
}

// pause returns the time until the next poll. If the store announces every
// change, polls only make up for lost notices.
func (s *Session) pause(polling time.Duration) time.Duration {
	for _, queue := range s.watches.Queues() {
		if s.notifier == nil || s.notices.isStale(queue) || !s.notifier.Listening(queue, false) ||
			s.watches.Whole(queue) && !s.notifier.Listening(queue, true) {
			return polling
		}
	}
	return s.config.Timeout / 4
}

// turn estimates when a waiter may get its lock. If that is soon, the query
// lets the store await the removal of the node ahead.
func (s *Session) turn() (far time.Duration, await Query) {
	if s.notifier != nil {
		return 0, Query{} // polls are rare anyway
	}
	far = time.Hour
	queues := s.watches.Queues()
	for _, queue := range queues {
		own, next := s.watches.Next(queue)
		n, pause := s.looks.ahead(queue, next)
		switch {
		case s.watches.Whole(queue):
			n = 0
		case next.Name == "":
			pause = max(pause, s.config.Longest)
		case s.config.Awaits && own.Name != "" && len(queues) == 1 && n < nearby:
			return 0, Query{Queue: queue, Own: own.Name, Await: next.Name}
		}
		far = min(far, max(pause, min(time.Duration(n)*s.config.Shortest/2, s.config.Longest)))
	}
	return far, Query{}
}

// nearby is the most nodes ahead for which the store itself waits. MariaDB
// takes a chain of 32 waits for a deadlock.
const nearby = 16

func (s *Session) lookAt(queues []string, await Query) (changed bool) {
	var ask []asked
	var queries []Query
	for _, queue := range queues {
		a := s.asking(Query{Queue: queue})
		if !s.watches.Whole(queue) {
			a.Names = s.watches.Names(queue) // includes all watches armed before a.mark
		}
		if queue == await.Queue {
			a.Own, a.Await = await.Own, await.Await
		}
		ask, queries = append(ask, a), append(queries, a.Query)
	}
	defer s.looks.forget(s.watches.Has)
	if len(ask) == 0 {
		return false
	}
	var all []Snapshot
	err := s.ask(s.life, func(ctx context.Context) (err error) {
		all, err = s.store.Look(ctx, queries)
		return err
	})
	if err != nil {
		return false
	}
	for i, a := range ask {
		_, news := s.answered(a, all[i])
		s.notices.looked(a.Queue, a.losses)
		changed = changed || news
	}
	return changed
}

// subscribeAgain subscribes to the queues whose notices do not arrive, because
// an earlier subscription may have failed.
func (s *Session) subscribeAgain() {
	if s.notifier == nil {
		return
	}
	for _, queue := range s.watches.Queues() {
		if !s.notifier.Listening(queue, false) {
			_, _ = s.compare(s.life, Query{Queue: queue, Names: s.watches.Names(queue)}) // after an error, the next call tries again
		}
	}
}

func (s *Session) read(ctx context.Context, q Query) (now Snapshot, err error) {
	err = s.ask(ctx, func(ctx context.Context) error {
		now, err = LookAt(ctx, s.store, q)
		return err
	})
	return now, err
}

// LookAt calls the store's Look for one queue.
func LookAt(ctx context.Context, store Store, q Query) (Snapshot, error) {
	all, err := store.Look(ctx, []Query{q})
	if err != nil {
		return Snapshot{}, err
	}
	return all[0], nil
}

// subscribe is like read, but also makes a Notifier announce changes.
func (s *Session) subscribe(ctx context.Context, q Query) (now Snapshot, err error) {
	if s.notifier == nil {
		return s.read(ctx, q)
	}
	err = s.ask(ctx, func(ctx context.Context) error {
		now, err = s.notifier.Subscribe(ctx, q)
		return err
	})
	return now, err
}

func (s *Session) compare(ctx context.Context, q Query) (now Snapshot, err error) {
	a := s.asking(q)
	if now, err = s.subscribe(ctx, a.Query); err == nil {
		now, _ = s.answered(a, now)
	}
	return now, err
}

// asked is a query, and what the session knew when it sent the query.
type asked struct {
	Query
	before Snapshot
	mark   watches.Mark
	losses int
}

func (s *Session) asking(q Query) asked {
	losses := s.notices.lossesSoFar()
	s.looks.mu.Lock()
	defer s.looks.mu.Unlock()
	before := s.looks.known[q.Queue]
	q.Known = before.Version
	return asked{q, before, s.watches.Mark(), losses}
}

// answered compares the watches with an answer of the store. It returns the
// full snapshot, and whether the queue has changed since the one before.
func (s *Session) answered(a asked, now Snapshot) (_ Snapshot, news bool) {
	if now.Same {
		now = a.before
	} else {
		now.Nodes = slices.SortedFunc(slices.Values(now.Nodes), func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
		news = a.before.differs(now)
		s.looks.know(a.Queue, now)
	}
	asked, version := a.Names, any(nil)
	if now.Version != 0 {
		asked, version = nil, now.Version // the answer has all nodes
	}
	s.watches.Compare(a.Queue, a.mark, asked, places(now), releasedSince(a.before, now), version)
	if asked == nil {
		s.notices.looked(a.Queue, a.losses)
	}
	return now, news
}

// differs returns false if the earlier Snapshot is zero, which means unknown.
func (before Snapshot) differs(now Snapshot) bool {
	if before.Version != 0 && now.Version != 0 {
		return before.Version != now.Version
	}
	same := func(a, b Node) bool { return a.Name == b.Name && a.Token == b.Token }
	return len(before.Nodes) > 0 && !slices.EqualFunc(before.Nodes, now.Nodes, same)
}

func (l *looks) know(queue string, now Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known[queue] = now
}

func (l *looks) forget(watched func(queue string) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.known, func(queue string, _ Snapshot) bool { return !watched(queue) })
}

// releasedSince ignores a node that is not in the first snapshot, because the
// node may have been released before.
func releasedSince(before, now Snapshot) (n driver.Node) {
	if now.Released == "" || now.Released == before.Released {
		return n
	}
	named := func(n Node) bool { return n.Name == now.Released }
	_, seq, ok := driver.ParseName(now.Released)
	if ok && slices.ContainsFunc(before.Nodes, named) && !slices.ContainsFunc(now.Nodes, named) {
		n = driver.Node{Name: now.Released, Seq: seq}
	}
	return n
}

func places(now Snapshot) []driver.Place {
	places := make([]driver.Place, len(now.Nodes))
	for i, n := range now.Nodes {
		_, seq, _ := driver.ParseName(n.Name)
		places[i] = driver.Place{Node: driver.Node{Name: n.Name, Seq: seq}, Token: n.Token}
	}
	return places
}
