package session

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Bounds for the interval at which a waiting session polls its queues. The
// interval is an eighth of the time since the last change, so that polling
// prolongs a wait by an eighth at most. It is also at least twice the duration
// of the last poll, to spare a busy database.
const (
	shortestLook = 2 * time.Millisecond
	longestLook  = 250 * time.Millisecond
)

type looks struct {
	woken  chan struct{}
	expire chan time.Duration
	queues atomic.Int64 // number of open watches of whole queues

	mu    sync.Mutex
	known map[string]Snapshot
}

func (l *looks) init() {
	l.woken = make(chan struct{}, 1)
	l.expire = make(chan time.Duration, 1)
	l.known = make(map[string]Snapshot)
}

// wake makes the session poll soon.
func (l *looks) wake() {
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

// countQueueWatch counts a watch of a whole queue as open until it is stopped.
func (l *looks) countQueueWatch(w driver.Watch) driver.Watch {
	l.queues.Add(1)
	l.wake()
	return driver.NewWatch(w.C, sync.OnceFunc(func() {
		l.queues.Add(-1)
		w.Stop()
	}))
}

func (s *Session) look() {
	defer s.watches.End()
	ctx, cancel := s.lease.Context()
	defer cancel()
	pause, next, changed := shortestLook, time.Time{}, time.Now()
	for {
		// A new watch must not postpone the next poll.
		if soon := time.Now().Add(s.pause(pause)); next.IsZero() || soon.Before(next) {
			next = soon
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-s.looks.woken:
			timer.Stop()
			pause, changed = shortestLook, time.Now()
		case <-timer.C:
			began := time.Now()
			if pause == longestLook {
				for _, queue := range s.watches.Queues() {
					s.startListening(ctx, queue) // again, if notices have ceased
				}
			}
			if s.lookOnce(ctx) {
				changed = time.Now()
			}
			pause = min(max(shortestLook, time.Since(changed)/8, 2*time.Since(began)), longestLook)
			next = time.Time{}
		}
	}
}

// pause returns the time until the next poll: the interval polling, or a
// quarter of the session timeout if every watch gets notices. In that case,
// polls are only a safeguard against a lost notice.
func (s *Session) pause(polling time.Duration) time.Duration {
	if s.looks.queues.Load() > 0 {
		return polling
	}
	for _, queue := range s.watches.Queues() {
		if s.line(queue) == 0 {
			return polling
		}
	}
	return s.timeout / 4
}

// lookOnce polls all watched queues and reports whether one has changed.
func (s *Session) lookOnce(ctx context.Context) (changed bool) {
	queues := s.watches.Queues()
	if len(queues) == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout/2)
	defer cancel()
	_, err := s.lookAtAll(ctx, queues, &changed)
	if errors.Is(err, ErrUnknownSession) {
		s.lease.End(err)
	}
	return changed
}

// lookAt reads one queue.
func (s *Session) lookAt(ctx context.Context, queue string) (Snapshot, error) {
	found, err := s.lookAtAll(ctx, []string{queue}, new(bool))
	return found[queue], err
}

// lookAtAll reads queues in one statement, and tells their watches what has
// changed.
func (s *Session) lookAtAll(ctx context.Context, queues []string, changed *bool) (found map[string]Snapshot, err error) {
	var before map[string]Snapshot
	var compare func(rest []string) error
	compare = func(rest []string) error {
		if len(rest) == 0 {
			found, before, err = s.snapshots(ctx, queues, changed)
			return err
		}
		queue := rest[0]
		return s.watches.LookReleased(queue, func() ([]driver.Place, driver.Node, any, error) {
			err := compare(rest[1:])
			now := found[queue]
			return places(now), releasedSince(before[queue], now), now.Version, err
		})
	}
	if err = compare(queues); err != nil {
		return nil, err
	}
	return found, nil
}

// releasedSince returns the node released between two snapshots of a queue, or
// the zero Node. It ignores a node that is not in the first snapshot, because
// the node may have been released before that snapshot.
func releasedSince(before, now Snapshot) (n driver.Node) {
	if now.Released == "" || now.Released == before.Released {
		return n
	}
	named := func(r Row) bool { return r.Name == now.Released }
	_, seq, ok := driver.ParseName(now.Released)
	if ok && slices.ContainsFunc(before.Nodes, named) && !slices.ContainsFunc(now.Nodes, named) {
		n = driver.Node{Name: now.Released, Seq: seq}
	}
	return n
}

// snapshots returns the current nodes of the queues, and the earlier snapshots.
// The database omits the nodes of an unchanged queue, so those come from the
// earlier snapshot.
func (s *Session) snapshots(ctx context.Context, queues []string, changed *bool) (found, known map[string]Snapshot, err error) {
	l := &s.looks
	l.mu.Lock()
	known = make(map[string]Snapshot)
	versions := make(map[string]int64)
	for _, queue := range queues {
		known[queue] = l.known[queue]
		versions[queue] = known[queue].Version
	}
	l.mu.Unlock()
	ctx, cancel := s.limit(ctx)
	defer cancel()
	if found, err = s.store.Look(ctx, s.id, versions); err != nil {
		return nil, nil, err
	}
	for queue, snapshot := range found {
		if snapshot.Same {
			found[queue] = known[queue]
		} else if len(known[queue].Nodes) > 0 || known[queue].Version != 0 {
			*changed = true
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.Copy(l.known, found)
	maps.DeleteFunc(l.known, func(queue string, _ Snapshot) bool {
		return !slices.Contains(queues, queue) && !s.watches.Has(queue)
	})
	return found, known, nil
}

func places(snapshot Snapshot) []driver.Place {
	places := make([]driver.Place, len(snapshot.Nodes))
	for i, r := range snapshot.Nodes {
		_, seq, _ := driver.ParseName(r.Name)
		places[i] = driver.Place{Node: driver.Node{Name: r.Name, Seq: seq}, Token: r.Token}
	}
	return places
}
