package sqlite

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

const (
	// shortest and longest bound the time between polls of the database while
	// the session has open watches. The time grows while nothing changes.
	shortest = 500 * time.Microsecond
	longest  = 20 * time.Millisecond
	// probeEvery is the interval between checks whether the processes at the
	// head of watched queues are alive.
	probeEvery = 20 * time.Millisecond
	// longestReap bounds the interval between searches for dead sessions,
	// because a session with a long timeout may wait for one with a short
	// timeout.
	longestReap = 2 * time.Second
)

// poke sends on a channel with a buffer of one, without blocking.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// look wakes the poller, which compares the session's watches with the
// database.
func (s *session) look() { poke(s.changed) }

// poll runs the poller until the session ends. It compares the watches with the
// database after notices, after the session's own changes, and periodically. It
// also ends the sessions of dead processes.
func (s *session) poll() {
	defer s.watches.End()
	ctx, cancel := s.lease.Context()
	defer cancel()
	p := poller{session: s, wait: shortest}
	timer, reap := time.NewTimer(time.Hour), time.NewTicker(min(s.timeout/8, longestReap))
	defer timer.Stop()
	defer reap.Stop()
	for {
		var tick <-chan time.Time
		if s.watches.Len() > 0 {
			timer.Reset(p.wait)
			tick = timer.C
		}
		select {
		case <-ctx.Done():
			return
		case <-s.armed:
			p.wait = shortest
		case <-s.changed:
			p.look(ctx, true)
		case <-tick:
			p.look(ctx, false)
			p.probe(ctx)
		case <-reap.C:
			_ = s.reap(ctx) // an error is ignored, because the next search retries
		}
	}
}

type poller struct {
	*session
	wait     time.Duration // time until the next poll
	version  [2]int64      // number of the connection, and its PRAGMA data_version
	changes  int64         // database's count of node changes at the last poll
	lastTime time.Time     // time of the last probe
}

// look compares all watches with the database if another session has changed
// nodes, or unconditionally if surely is true.
func (p *poller) look(ctx context.Context, surely bool) {
	p.wait = min(p.wait*3/2, longest)
	changed := false
	err := p.db.read(ctx, func(ctx context.Context) (err error) {
		if changed, err = p.hasChanged(ctx); err != nil || !changed && !surely {
			return err
		}
		changed = true
		for _, queue := range p.watches.Queues() {
			if err := p.compare(ctx, queue); err != nil {
				p.version = [2]int64{} // look again
				return err
			}
		}
		return nil
	})
	if err == nil && changed {
		p.wait = shortest
	}
	if errors.Is(err, errExpired) {
		p.lease.End(err)
	}
}

// hasChanged reports whether another session has changed nodes since the last
// call. It reads only a counter, because heartbeats change the database, too.
// If each one made all sessions read their queues, a queue could have only
// about 100 waiters.
func (p *poller) hasChanged(ctx context.Context) (changed bool, err error) {
	version := [2]int64{p.db.connects}
	if _, err := p.db.row(ctx, sqlDataVersion, []any{&version[1]}); err != nil || version == p.version {
		return false, err
	}
	var alive bool
	var changes int64
	if _, err := p.db.row(ctx, sqlChanges, []any{&alive, &changes}, p.presence.id); err != nil {
		return false, err
	}
	if !alive {
		return false, errExpired
	}
	changed = changes != p.changes || version[0] != p.version[0]
	p.version, p.changes = version, changes
	return changed, nil
}

func (s *session) compare(ctx context.Context, queue string) error {
	var c content
	err := s.watches.LookReleased(queue, func() (nodes []driver.Place, released driver.Node, version any, err error) {
		c, err = s.content(ctx, queue)
		for _, n := range c.nodes {
			nodes = append(nodes, driver.Place{Node: n.Node, Token: n.token()})
		}
		if _, seq, ok := driver.ParseName(c.released); ok && s.announced != queue+"/"+c.released {
			released = driver.Node{Name: c.released, Seq: seq}
		}
		return nodes, released, c.changes, err
	})
	if err != nil {
		return err
	}
	if c.released != "" {
		s.announced = queue + "/" + c.released
	}
	s.heads[queue] = s.head(c)
	return nil
}

// head returns the IDs of other sessions that own one of the first eight nodes.
func (s *session) head(c content) (ids []string) {
	for _, n := range c.nodes[:min(len(c.nodes), 8)] {
		if n.session != "" && n.session != s.presence.id && !slices.Contains(ids, n.session) {
			ids = append(ids, n.session)
		}
	}
	return ids
}

// probe ends the sessions of dead processes that own one of the first nodes of
// a watched queue.
func (p *poller) probe(ctx context.Context) {
	if time.Since(p.lastTime) < probeEvery {
		return
	}
	p.lastTime = time.Now()
	dead := false
	err := p.db.use(ctx, func() error {
		for queue, ids := range p.heads {
			if !p.watches.Has(queue) {
				delete(p.heads, queue)
			}
			dead = dead || slices.ContainsFunc(ids, p.presence.dead)
		}
		return nil
	})
	if err == nil && dead {
		_ = p.reap(ctx) // an error is ignored, because the next probe retries
	}
}
