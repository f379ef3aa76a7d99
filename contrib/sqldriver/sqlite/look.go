package sqlite

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver/session"
)

const (
	// shortest and longest bound the time between polls while the session has
	// watches.
	shortest = 500 * time.Microsecond
	longest  = 20 * time.Millisecond
	// patience bounds the time between polls by a waiter behind other waiters.
	patience = 200 * time.Millisecond
	// probeEvery is the interval between checks of the processes at the heads
	// of queues.
	probeEvery = 20 * time.Millisecond
	// forgetAfter is how long member.heads keeps a queue that is not polled.
	forgetAfter = time.Second
)

// head lists the other sessions at a queue's head. Polls check whether they are
// alive.
type head struct {
	sessions []string
	asked    time.Time // time of the last poll of the queue
}

// content is a queue at one instant.
type content struct {
	session.Snapshot
	heads []string // other sessions that own the first nodes
}

func (m *member) content(ctx context.Context, queue string) (c content, err error) {
	var released *string
	ahead := -1 // nodes ahead of the session's first
	err = m.db.query(ctx, sqlQueue, func(r rows) error {
		var alive bool
		var name, owner *string
		var seq *int64
		if err := r.Scan(&alive, &c.Version, &released, &seq, &name, &owner); err != nil {
			return err
		}
		if !alive {
			return errExpired
		}
		if name == nil {
			return nil
		}
		n := session.Node{Name: *name}
		if owner != nil {
			n.Token, n.Owner = *seq, *owner
			if ahead < 0 && *owner == m.presence.id {
				ahead = len(c.Nodes)
			}
			if len(c.Nodes) < 8 && *owner != m.presence.id && !slices.Contains(c.heads, *owner) {
				c.heads = append(c.heads, *owner)
			}
		}
		c.Nodes = append(c.Nodes, n)
		return nil
	}, m.presence.id, queue)
	if m.presence.hears() {
		c.Pause = min(patience, time.Duration(max(0, ahead-1))*longest)
	}
	c.Version++ // zero means that the store counts no versions
	if released != nil {
		if name, ok := strings.CutPrefix(*released, queue+"/"); ok && !strings.Contains(name, "/") {
			c.Released = name
		}
	}
	return c, err
}

// Look implements session.Store. It ends the sessions of dead processes if they
// own one of the first nodes, so that even TryLock, which does not wait, gets
// the lock of a killed holder.
func (m *member) Look(ctx context.Context, ask []session.Query) (found []session.Snapshot, err error) {
	var suspects []string
	look := func() error {
		return m.db.read(ctx, func(ctx context.Context) (err error) {
			found, suspects, err = m.look(ctx, ask)
			return err
		})
	}
	if err = look(); err == nil && m.dropDead(ctx, suspects) {
		err = look()
	}
	return found, explain(err)
}

// look reads queues that have changed. suspects are sessions that may be dead.
func (m *member) look(ctx context.Context, ask []session.Query) (found []session.Snapshot, suspects []string, err error) {
	if slices.ContainsFunc(ask, func(q session.Query) bool { return q.Known != 0 }) {
		if err := m.countChanges(ctx); err != nil {
			return nil, nil, err
		}
	}
	now := time.Now()
	probe := now.Sub(m.probed) >= probeEvery
	if probe {
		m.probed = now
		maps.DeleteFunc(m.heads, func(_ string, h head) bool { return now.Sub(h.asked) > forgetAfter })
	}
	for _, q := range ask {
		h, known := m.heads[q.Queue]
		s := session.Snapshot{Version: m.changes + 1, Same: true}
		if !known || q.Known != s.Version {
			c, err := m.content(ctx, q.Queue)
			if err != nil {
				return nil, nil, err
			}
			s, h.sessions = c.Snapshot, c.heads
		}
		h.asked = now
		m.heads[q.Queue] = h
		found = append(found, s)
		switch {
		case probe:
			suspects = append(suspects, h.sessions...)
		case q.Known == 0 && len(h.sessions) > 0:
			suspects = append(suspects, h.sessions[0])
		}
	}
	slices.Sort(suspects)
	return found, slices.Compact(suspects), nil
}

// countChanges updates m.changes, so that heartbeats don't make all sessions
// read their queues.
func (m *member) countChanges(ctx context.Context) error {
	version := [2]int64{m.db.connects}
	if _, err := m.db.row(ctx, sqlDataVersion, []any{&version[1]}); err != nil || version == m.version {
		return err
	}
	var alive bool
	if _, err := m.db.row(ctx, sqlChanges, []any{&alive, &m.changes}, m.presence.id); err != nil {
		return err
	}
	if !alive {
		return errExpired
	}
	m.version = version
	return nil
}

// dropDead ends dead sessions, and reports whether the caller must read the
// queue again.
func (m *member) dropDead(ctx context.Context, ids []string) bool {
	if !slices.ContainsFunc(ids, m.presence.dead) {
		// Another goroutine or process may have ended one of the sessions.
		return slices.ContainsFunc(ids, m.presence.missing)
	}
	_, err := m.Expire(ctx)
	return err == nil
}

func (m *member) Expire(ctx context.Context) (ended bool, err error) {
	if ended, err = m.reap(ctx); ended {
		m.host.Look()
	}
	return ended, explain(err)
}

// reap ends the sessions whose processes died or whose deadlines have passed.
func (m *member) reap(ctx context.Context) (ended bool, err error) {
	var dead []string
	left, err := m.sessions(ctx)
	for id, left := range left {
		if m.presence.dead(id) {
			dead = append(dead, id)
		}
		ended = ended || left <= 0
	}
	ended = ended || len(dead) > 0
	if err != nil || !ended {
		return false, err
	}
	err = m.update(ctx, func(ctx context.Context) error {
		for _, id := range dead {
			if err := m.db.exec(ctx, sqlEnd, id); err != nil {
				return err
			}
		}
		return m.db.exec(ctx, sqlExpire, byClock(m.presence.id)...)
	})
	if err != nil {
		return false, err
	}
	for _, id := range dead {
		m.presence.forget(id)
	}
	return true, nil
}

// sweep removes the files of dead sessions, unless reap still needs them to see
// the death.
func (m *member) sweep(ctx context.Context) error {
	ids := m.presence.remains()
	if len(ids) == 0 {
		return nil
	}
	left, err := m.sessions(ctx)
	if err != nil {
		return err
	}
	for id := range ids {
		if _, alive := left[id]; !alive {
			m.presence.forget(id)
		}
	}
	return nil
}

// sessions returns, by ID, how many microseconds the other sessions have left.
func (m *member) sessions(ctx context.Context) (left map[string]int64, err error) {
	err = m.db.read(ctx, func(ctx context.Context) error {
		left = make(map[string]int64)
		return m.db.query(ctx, sqlSessions, func(r rows) error {
			var id string
			var d int64
			err := r.Scan(&id, &d)
			left[id] = d
			return err
		}, byClock(m.presence.id)...)
	})
	return left, err
}
