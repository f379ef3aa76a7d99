package engine

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Entry is one node in a queue, from Create until it is removed. Its state goes
// down this list. An entry may leave out states, but never goes back:
//
//	joining   Create is under way
//	waiting   the node is in the queue, and the entry is not granted
//	granted   the entry is granted: its owner holds what the queue guards
//	removing  the owner has given the entry up, and the node may still exist
//	gone      no request about the node follows: the node was removed, or the
//	          store removes it with the session, or the entry is lost
//
// Every transition is a method of this file: joined, Grant, lose, beginRemoval
// and removed. An Entry is safe for use by many goroutines, except that only
// one goroutine at a time may wait.
type Entry struct {
	session *Session
	queue   *Queue
	spec    Spec
	number  int64 // the grant's number within the session, from 1; set by Session.add

	// first is the answer of Create. It may hold the nodes ahead and a watch.
	// Each of the two is removed from the field when it is used. When the wait
	// is over, the field is cleared. No mutex guards this field: while the
	// entry waits, only the goroutine that waits uses it, and after that only
	// the goroutine that grants or removes the entry.
	first driver.Joined
	// listed is the last list of the queue. It is used as the field first is.
	listed list

	mu       sync.Mutex
	state    state
	place    driver.Place
	since    time.Time                  // the time of the grant; zero before
	lost     func(Loss) (report func()) // from Grant; tells the owner of a loss
	loss     *Loss                      // how the entry was lost; nil: it was not lost
	inUse    bool                       // set when the entry is lost, as callers may still work under it; cleared by SeeLoss and beginRemoval
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

// follows holds, for each state, the states that may follow it.
var follows = map[state][]state{
	joining:  {waiting},
	waiting:  {granted, removing},
	granted:  {removing, gone},
	removing: {gone},
}

// move panics at a transition that is not in follows. It is called with mu
// held.
func (e *Entry) move(to state) {
	for _, legal := range follows[e.state] {
		if to == legal {
			e.state = to
			return
		}
	}
	panic(fmt.Sprintf("dlock: entry %s cannot go from %v to %v", e.place.Name, e.state, to))
}

// Rule returns the part of ahead that an entry has to wait for, or nothing if the
// entry may be granted. The parameter holds the nodes before the entry's own, in
// the order of the queue.
type Rule func(ahead []driver.Node) []driver.Node

// predecessor returns the index of the only node to wait for. If there is none,
// or more than one, it returns -1, and Create arms no watch.
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
// If Create fails, there is no node and no entry.
func Join(ctx context.Context, s *Session, q *Queue, spec Spec) (*Entry, error) {
	e := &Entry{session: s, queue: q, spec: spec}
	n := driver.NodeSpec{Prefix: spec.Prefix, Data: spec.Data}
	if spec.Waits && q.Wait.Kind == WatchPredecessor {
		n.Predecessor = spec.Rule.predecessor
	}
	j, err := s.Create(ctx, q.Name, n)
	if err != nil {
		return nil, err
	}
	e.joined(j)
	return e, nil
}

// joined is the transition from joining to waiting: the store has the node.
func (e *Entry) joined(j driver.Joined) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.move(waiting)
	e.first, e.place = j, j.Place
}

// Grant is the transition from waiting to granted. If the session has ended,
// Grant returns why; the entry then stays in the state waiting, and the caller
// has to remove it.
//
// If the entry is lost later, lost is called once to tell the owner, with no
// mutex of this package held. The function report that it returns runs the
// hooks. It is called once the owners of all entries that were lost together
// know, so that a slow hook delays no owner.
//
// The watch of the entry's own node starts watchAfter later. An entry that is
// removed before that needs no watch, because Remove itself finds out whether
// the node was gone already.
func (e *Entry) Grant(lost func(Loss) (report func())) error {
	if err := e.session.Err(); err != nil { // reads the clocks
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

// add records an entry that is about to be granted, so that End loses it. It
// fails after End.
func (s *Session) add(e *Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil {
		return s.ended
	}
	s.grants++
	e.number = s.grants
	s.granted[e.number] = e
	return nil
}

func (s *Session) ungrant(e *Entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.granted, e.number)
}

// lose is the transition from granted to gone: the session has ended, or the
// node is not in the queue. If the entry is not granted, lose does nothing: the
// entry has no owner yet, or none any more.
func (e *Entry) lose(cause error) (report func()) {
	e.mu.Lock()
	if e.state != granted {
		e.mu.Unlock()
		return func() {}
	}
	e.move(gone)
	loss := Loss{Node: e.place.Name, Cause: cause}
	e.loss, e.inUse = &loss, true
	e.session.lossBegins()
	e.stop()
	e.mu.Unlock()
	e.session.ungrant(e)
	return e.lost(loss)
}

// beginRemoval is the transition from waiting or granted to removing. If the
// entry was lost before, there is nothing to remove, and beginRemoval returns
// the loss.
func (e *Entry) beginRemoval() *Loss {
	e.dropFirst()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.loss != nil {
		e.markSeen()
		return e.loss
	}
	e.move(removing)
	e.stop()
	e.session.ungrant(e)
	return nil
}

// removed is the transition from removing to gone.
func (e *Entry) removed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.move(gone)
}

// stop stops what runs only while an entry is granted. It is called with mu
// held.
func (e *Entry) stop() {
	e.watching.stopWatch()
	e.rename.cancelReplace()
}

func (e *Entry) dropFirst() {
	e.first.Watch.Stop()
	e.first = driver.Joined{}
}

// SeeLoss notes that no caller works under the lost entry any more: see
// Session.AwaitLossesSeen.
func (e *Entry) SeeLoss() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.markSeen()
}

func (e *Entry) markSeen() {
	if e.inUse {
		e.inUse = false
		e.session.lossEnds()
	}
}

// Check reads the clocks of the session, and returns the loss or nil.
func (e *Entry) Check() *Loss {
	if e.session.Err() != nil {
		e.lose(e.session.Cause())()
	}
	return e.Loss()
}

// Loss returns how the entry was lost, or nil. It does not read the clocks.
func (e *Entry) Loss() *Loss {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.loss
}

// SessionOver reports whether the session has ended. It reads the clocks.
func (e *Entry) SessionOver() bool { return e.session.Err() != nil }

// Alone reports whether Create has found no node before the entry's own.
func (e *Entry) Alone() bool { return e.first.Alone() }

// Place returns the node, with its present name, and its token.
func (e *Entry) Place() driver.Place {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.place
}

// Since returns when the entry was granted.
func (e *Entry) Since() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.since
}

// isGranted does not read the clocks.
func (e *Entry) isGranted() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state == granted
}

func (e *Entry) logger() *slog.Logger { return e.session.client.Logger }
