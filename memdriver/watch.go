package memdriver

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/driver/watches"
)

// Watch implements driver.Session (rules 6 and 13 of package driver). It arms
// the watch before it checks that the nodes exist, so that it misses no change.
func (s *session) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	w := s.watches.Arm(queue, p, ahead...)
	stands, err := ask(ctx, s, on(queue, faults.OpWatch, p.Name, nil), func() (bool, error) { return s.store.allInQueue(queue, p, ahead), nil })
	switch {
	case err != nil:
		w.Stop()
		return driver.Watch{}, err
	case !stands:
		w.Stop()
		return watches.Ended(), nil
	}
	return w, nil
}

func (s *session) WatchQueue(ctx context.Context, queue string) (driver.Watch, error) {
	w := s.watches.ArmQueue(queue, nil)
	if err := s.do(ctx, on(queue, faults.OpWatchQueue, "", nil), func() error { return nil }); err != nil {
		w.Stop()
		return driver.Watch{}, err
	}
	return w, nil
}

// notice is the store's message to a session that a watched queue has changed.
type notice struct {
	queue string
	gone  driver.Node // removed or replaced; zero if one was added
	why   driver.Cause
	sent  time.Time
}

// The methods below require the store's mutex.

func (st *Store) notify(queue string, gone driver.Node, why driver.Cause) {
	for _, s := range st.sessions {
		if s.watches.Has(queue) {
			s.sendNotice(notice{queue, gone, why, time.Now()})
		}
	}
}

// sendNotice keeps notices in the order of the changes in the store (rule 13 of
// package driver).
func (s *session) sendNotice(n notice) {
	if len(s.inbox) == 0 && s.conn.intact() {
		s.receive(n)
		return
	}
	s.inbox = append(s.inbox, n)
	if len(s.inbox) == 1 {
		s.spawnLocked(s.deliverNotices)
	}
}

func (s *session) receive(n notice) {
	if n.gone == (driver.Node{}) {
		s.watches.Changed(n.queue)
	} else {
		s.watches.Gone(n.queue, n.gone, n.why)
	}
}
