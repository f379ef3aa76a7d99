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
// from left to right, and steps are left out but never taken back:
//
//	joining   Create is under way
//	waiting   the node is in the queue, and the entry is not granted
//	granted   the entry is granted: what the queue guards is its owner's
//	removing  the owner has given the entry up, and the node may still stand
//	gone      no request about the node follows: it was removed, or it ends with
//	          the session, or it is lost
//
// Every transition is a method of this file: joined, Grant, lose, beginRemoval
// and removed. An Entry is safe for use by many goroutines, except that one
// goroutine at a time waits.
type Entry struct {
	session *Session
	queue   *Queue
	spec    Spec
	number  int64 // of the grant; set by Session.add

	// What Create has said about the queue, until it is used or the wait is
	// over. Only the goroutine that waits uses it, and then the goroutine that
	// grants or removes.
	first driver.Joined

	mu       sync.Mutex
	state    state
	place    driver.Place
	since    time.Time // when it was granted
	owner    Owner     // of the grant
	loss     *Loss     // why it is gone, if it was lost
	inUse    bool      // it was lost, and a caller may still work under it
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

// follows lists the states that may follow a state.
var follows = map[state][]state{
	joining:  {waiting},
	waiting:  {granted, removing},
	granted:  {removing, gone},
	removing: {gone},
}

// move is called with mu held. An illegal transition is a mistake of this
// package.
func (e *Entry) move(to state) {
	for _, legal := range follows[e.state] {
		if to == legal {
			e.state = to
			return
		}
	}
	panic(fmt.Sprintf("dlock: entry %s cannot go from %v to %v", e.place.Name, e.state, to))
}

// Join creates a node in the queue and returns its entry, which waits. If
// Create fails there is no node and no entry.
func Join(ctx context.Context, s *Session, q *Queue, spec Spec) (*Entry, error) {
	e := &Entry{session: s, queue: q, spec: spec}
	n := driver.NodeSpec{Prefix: spec.Prefix, Data: spec.Data}
	if spec.Waits && q.Wait.Kind == WatchPredecessor {
		n.Predecessor = spec.Blocks
	}
	j, err := s.Create(ctx, q.Name, n)
	if err != nil {
		return nil, err
	}
	e.joined(j)
	return e, nil
}

// joined: joining -> waiting. The store has the node.
func (e *Entry) joined(j driver.Joined) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.move(waiting)
	e.first, e.place = j, j.Place
}

// Owner is what an entry is granted to.
type Owner interface {
	// Lose is called once if the entry is lost, with no mutex of this package
	// held. The function that it returns is called when the owners of all
	// entries that were lost together have been told.
	Lose(Loss) (report func())
}

// Grant: waiting -> granted. It fails if the session has ended; the entry then
// still waits, and has to be removed.
//
// After a while the entry's own node is watched. A brief grant costs nothing
// for that: Remove finds out if the node is gone.
func (e *Entry) Grant(to Owner) error {
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
	e.owner, e.since = to, time.Now()
	e.watching.timer = time.AfterFunc(watchAfter, func() { e.session.client.Go(e.watchNode) })
	return nil
}

// lose: granted -> gone. The session has ended, or the node is not in the
// queue. An entry that is not granted is not lost: its owner has given it up
// already.
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
	e.session.remove(e)
	return e.owner.Lose(loss)
}

// beginRemoval: waiting or granted -> removing. The owner gives the entry up.
// If it was lost before, beginRemoval returns that loss, and there is nothing
// to remove.
func (e *Entry) beginRemoval() *Loss {
	e.dropFirst()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.loss != nil {
		e.seeLoss()
		return e.loss
	}
	e.move(removing)
	e.stop()
	e.session.remove(e)
	return nil
}

// removed: removing -> gone. No request about the node follows.
func (e *Entry) removed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.move(gone)
}

// stop ends what runs for an entry that is granted or waits. It is called with
// mu held.
func (e *Entry) stop() {
	e.watching.end()
	e.rename.end()
}

// dropFirst forgets what Create has said about the queue.
func (e *Entry) dropFirst() {
	e.first.Watch.Stop()
	e.first = driver.Joined{}
}

// SeeLoss says that no caller works under the lost entry any more. The session
// ends in the store once that is so for all its lost entries.
func (e *Entry) SeeLoss() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seeLoss()
}

func (e *Entry) seeLoss() {
	if e.inUse {
		e.inUse = false
		e.session.lossEnds()
	}
}

// Check reads the clocks of the session, and returns the loss if the entry was
// lost.
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

// Place returns the node as it is now.
func (e *Entry) Place() driver.Place {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.place
}

// Token returns the fencing token.
func (e *Entry) Token() int64 { return e.Place().Token }

// Since returns when the entry was granted.
func (e *Entry) Since() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.since
}

// isGranted reports whether the entry is granted, without reading the clocks.
func (e *Entry) isGranted() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.state == granted
}

func (e *Entry) logger() *slog.Logger { return e.session.client.Logger }
