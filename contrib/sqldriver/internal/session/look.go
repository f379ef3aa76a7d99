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

// The session looks at the queues of its watches after shortestLook. While nothing
// changes, it waits twice as long each time, up to longestLook. If the database
// sends notices for all watches, the session looks at the queues much less often,
// and only for safety: see [Session.pause].
const (
	shortestLook = 20 * time.Millisecond
	longestLook  = 250 * time.Millisecond
)

// looks holds what the session knows from its looks at the queues.
type looks struct {
	woken  chan struct{}
	expire chan time.Duration
	queues atomic.Int64 // the number of open watches of whole queues

	mu    sync.Mutex
	known map[string]Snapshot
}

func (l *looks) init() {
	l.woken = make(chan struct{}, 1)
	l.expire = make(chan time.Duration, 1)
	l.known = make(map[string]Snapshot)
}

// wake makes the next look come soon.
func (l *looks) wake() {
	select {
	case l.woken <- struct{}{}:
	default:
	}
}

// countQueueWatch counts a watch of a whole queue until it is stopped.
func (l *looks) countQueueWatch(w driver.Watch) driver.Watch {
	l.queues.Add(1)
	l.wake()
	return driver.NewWatch(w.C, sync.OnceFunc(func() {
		l.queues.Add(-1)
		w.Stop()
	}))
}

// look looks at the queues of all watches, until the lease has ended.
func (s *Session) look() {
	defer s.watches.End()
	ctx, cancel := s.lease.Context()
	defer cancel()
	pause, next := shortestLook, time.Time{}
	for {
		if s.watches.Len() == 0 {
			pause, next = shortestLook, time.Time{}
			select {
			case <-ctx.Done():
				return
			case <-s.looks.woken:
			}
		}
		// A new watch makes the next look come earlier, and never later.
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
			pause = shortestLook
		case <-timer.C:
			pause, next = s.lookOnce(ctx, pause), time.Time{}
		}
	}
}

// pause returns the time until the next look. If notices arrive for all
// watches, this is a quarter of the session timeout. Otherwise it is the
// argument.
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

// lookOnce looks at all queues and returns the pause before the next look.
func (s *Session) lookOnce(ctx context.Context, pause time.Duration) time.Duration {
	queues := s.watches.Queues()
	ctx, cancel := context.WithTimeout(ctx, s.timeout/2)
	defer cancel()
	var changed bool
	_, err := s.lookAtAll(ctx, queues, &changed)
	if errors.Is(err, ErrUnknownSession) {
		s.lease.End(err)
	}
	if changed {
		return shortestLook
	}
	return min(2*pause, longestLook)
}

// lookAt looks at one queue.
func (s *Session) lookAt(ctx context.Context, queue string) (Snapshot, error) {
	found, err := s.lookAtAll(ctx, []string{queue}, new(bool))
	return found[queue], err
}

// lookAtAll looks at queues with one statement. Then it ends the watches that have
// missed a change.
func (s *Session) lookAtAll(ctx context.Context, queues []string, changed *bool) (found map[string]Snapshot, err error) {
	var compare func(rest []string) error
	compare = func(rest []string) error {
		if len(rest) == 0 {
			found, err = s.snapshots(ctx, queues, changed)
			return err
		}
		return s.watches.Look(rest[0], func() ([]driver.Place, any, error) {
			err := compare(rest[1:])
			return places(found[rest[0]]), found[rest[0]].Version, err
		})
	}
	err = compare(queues)
	return found, err
}

// snapshots asks the database for queues. The database does not return the nodes of a
// queue whose version has not changed since an earlier look: snapshots takes these
// nodes from that look.
func (s *Session) snapshots(ctx context.Context, queues []string, changed *bool) (map[string]Snapshot, error) {
	l := &s.looks
	l.mu.Lock()
	known, versions := make(map[string]Snapshot), make(map[string]int64)
	for _, queue := range queues {
		known[queue] = l.known[queue]
		versions[queue] = known[queue].Version
	}
	l.mu.Unlock()
	found, err := s.store.Look(ctx, s.id, versions)
	if err != nil {
		return nil, err
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
	return found, nil
}

func places(snapshot Snapshot) []driver.Place {
	places := make([]driver.Place, len(snapshot.Nodes))
	for i, r := range snapshot.Nodes {
		_, seq, _ := driver.ParseName(r.Name)
		places[i] = driver.Place{Node: driver.Node{Name: r.Name, Seq: seq}, Token: r.Token}
	}
	return places
}
