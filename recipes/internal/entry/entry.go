package entry

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Entry is one node in a queue, from its creation until it is removed. Its
// state only advances down this list, and may skip states:
//
//	joining   Create is under way
//	waiting   the node is in the queue, and the entry is not granted
//	granted   the entry is granted: its owner holds what the queue guards
//	removing  the owner has given the entry up, and the node may still exist
//	gone      no more requests about the node: it was removed, the store
//	          removes it with the session, or the entry is lost
//
// An Entry is safe for concurrent use, except that only one goroutine at a time
// may wait.
type Entry struct {
	session *Grants
	queue   *Queue
	spec    Spec
	number  int64     // the grant's number in its session, from 1
	asked   time.Time // when Create was sent; set by createNow

	// The next three fields need no mutex, because only one goroutine at a time
	// waits with, grants or removes an entry.

	// first is the result of Create. Its parts are cleared once used.
	first driver.Joined
	// listed summarizes the latest list of the queue.
	listed list
	// followed reports whether another contender may have joined the queue
	// behind this entry and seen it waiting.
	followed bool

	mu       sync.Mutex
	state    state
	place    driver.Place
	created  time.Time  // by the store's clock; zero if unknown
	since    time.Time  // when granted; zero before
	lost     func(Loss) // tells the owner; set by Grant
	loss     *Loss      // nil unless lost
	inUse    bool       // whether callers may still use the lost lock
	watching nodeWatch
	rename   rename
}

type state int

const (
	joining state = iota
	waiting
	granted
	removing
	gone
)

func (s state) String() string {
	return [...]string{"joining", "waiting", "granted", "removing", "gone"}[s]
}

var follows = map[state][]state{
	joining:  {waiting},
	waiting:  {granted, removing},
	granted:  {removing, gone},
	removing: {gone},
}

// move changes the state, with mu held, and panics if that is illegal.
func (e *Entry) move(to state) {
	for _, legal := range follows[e.state] {
		if to == legal {
			e.state = to
			return
		}
	}
	panic(fmt.Sprintf("dlock: entry %s cannot go from %v to %v", e.place.Name, e.state, to))
}

// Rule decides which nodes an entry waits for. It gets the nodes ahead, in
// queue order, and returns those that block the entry. If there are none, the
// entry may be granted. A Rule has no side effects.
type Rule func(ahead []driver.Node) []driver.Node

// predecessor returns the index of the node that Create should watch. It is -1
// unless exactly one node blocks the entry.
func (r Rule) predecessor(ahead []driver.Node) int {
	blocking := r(ahead)
	if len(blocking) != 1 {
		return -1
	}
	i := len(ahead) - 1
	for ahead[i] != blocking[0] {
		i--
	}
	return i
}

// Join creates a node in the queue and returns its entry, in the state waiting.
// If Create fails, no node is left.
func Join(ctx context.Context, s *Grants, q *Queue, spec Spec) (*Entry, error) {
	e := &Entry{session: s, queue: q, spec: spec}
	n := driver.NodeSpec{Prefix: spec.Prefix, Data: spec.Data}
	if spec.Waits && q.WaitPolicy.Kind == WatchPredecessor {
		n.Predecessor = spec.Rule.predecessor
	}
	if err := s.awaitLeft(ctx, q.Name); err != nil {
		return nil, err
	}
	if err := e.create(ctx, n); err != nil {
		return nil, err
	}
	return e, nil
}

// Grant marks a waiting entry as granted. If the session has ended, it returns
// the reason, and the caller has to remove the entry.
//
// If the entry is lost later, the function lost is called once to tell the
// owner, with no mutex of this package held. It must not block, because it
// delays the reports to other owners.
//
// The node is watched only after watchAfter.
func (e *Entry) Grant(lost func(Loss)) error {
	if err := e.session.Err(); err != nil { // also detects an expired lease
		return err
	}
	e.dropFirst()
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.session.add(e); err != nil {
		return err
	}
	e.move(granted)
	e.lost, e.since = lost, time.Now()
	e.watching.timer = time.AfterFunc(watchAfter, func() { e.session.client.Go(e.watchNode) })
	return nil
}

// add registers a grant, so that End reports its loss. It fails after End.
func (s *Grants) add(e *Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return s.ended
	}
	s.grants++
	e.number = s.grants
	s.byNumber[e.number] = e
	return nil
}

func (s *Grants) ungrant(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byNumber, e.number)
}

// lose marks a granted entry as lost. An entry that is not granted has no owner
// to tell.
func (e *Entry) lose(cause error) {
	e.mu.Lock()
	if e.state != granted {
		e.mu.Unlock()
		return
	}
	e.move(gone)
	loss := Loss{Node: e.place.Name, Cause: cause}
	e.loss, e.inUse = &loss, true
	e.session.lossBegins()
	e.stop()
	e.mu.Unlock()
	e.session.ungrant(e)
	e.lost(loss)
}

// beginRemoval claims the entry for removal. If the entry is already lost, it
// returns the loss instead, because no node is left to remove.
func (e *Entry) beginRemoval() *Loss {
	e.dropFirst()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.loss != nil {
		if e.inUse {
			e.inUse = false
			e.session.lossEnds()
		}
		return e.loss
	}
	e.move(removing)
	e.stop()
	e.session.ungrant(e)
	return nil
}

func (e *Entry) removed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.move(gone)
}

// stop must be called with mu held.
func (e *Entry) stop() {
	e.watching.stopWatch()
	e.rename.cancelReplace()
}

func (e *Entry) dropFirst() {
	e.first.Watch.Stop()
	e.first = driver.Joined{}
}

// Check returns the loss if the entry is lost. It also detects a lease that has
// expired unnoticed.
func (e *Entry) Check() *Loss {
	if e.session.Err() != nil {
		e.lose(e.session.Cause())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.loss
}

// SessionOver reports whether the session has ended or its lease has expired.
func (e *Entry) SessionOver() bool { return e.session.Err() != nil }

// Followed reports whether, at the time of the grant, another contender may
// have been in the queue behind the entry. That contender saw the entry
// waiting, and does not know that it is granted.
func (e *Entry) Followed() bool { return e.followed }

// Alone reports whether the queue was empty when the node was created.
func (e *Entry) Alone() bool { return e.first.Alone() }

// Place returns the node, with its current name, and its token.
func (e *Entry) Place() driver.Place {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.place
}

// Data returns the data that the node was created with.
func (e *Entry) Data() []byte { return e.spec.Data }

// Since returns when the entry was granted.
func (e *Entry) Since() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.since
}

// isGranted reports whether the entry is granted, without checking the lease.
func (e *Entry) isGranted() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state == granted
}

func (e *Entry) logger() *slog.Logger { return e.session.client.Logger }
