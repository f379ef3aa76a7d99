package sqlite

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
)

const (
	// shortest and longest bound the time between two polls of the database, while
	// the session has open watches. The time grows while nothing changes.
	shortest = 500 * time.Microsecond
	longest  = 20 * time.Millisecond
	// probeEvery is the time between two checks whether the processes live that own the
	// first nodes of a watched queue.
	probeEvery = 20 * time.Millisecond
	// longestReap bounds the time between two searches for sessions that have died. A
	// session with a long timeout may wait for one with a short timeout.
	longestReap = 2 * time.Second
)

// poke leaves a message in a channel for one message, unless it has one.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// look makes the session compare its watches with the database soon.
func (s *session) look() { poke(s.changed) }

// poll compares the watches with the database when another session has sent a notice,
// when this session has changed something, and when the database has changed. It
// checks for changes of the database from time to time while there are watches. It
// also drops the sessions that have died.
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
			_ = s.reap(ctx) // the next one repeats it
		}
	}
}

// poller holds the variables of a call of poll.
type poller struct {
	*session
	wait     time.Duration // the time until the next look
	version  [2]int64      // the number of this connection, and the version of the database that it sees
	changes  int64         // how often nodes had changed at the last look
	lastTime time.Time     // the time of the last probe
}

// look compares the watches with the database, if surely is true or if another session
// has changed nodes. One look serves all watches of the session.
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

// hasChanged reports whether another session has changed nodes since the last call. It
// lists no queue, because the heartbeats of other sessions change the database, too. If
// each of them made all others list a queue, the queue could have no more than about
// 100 waiters.
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

// compare compares the watches of a queue with its content in the database.
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

// head returns the other sessions that own one of the first eight nodes of a queue.
func (s *session) head(c content) (ids []string) {
	for _, n := range c.nodes[:min(len(c.nodes), 8)] {
		if n.session != "" && n.session != s.presence.id && !slices.Contains(ids, n.session) {
			ids = append(ids, n.session)
		}
	}
	return ids
}

// probe drops the sessions that own one of the first nodes of a watched queue and whose
// processes have died.
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
		_ = p.reap(ctx) // the next probe repeats it
	}
}
