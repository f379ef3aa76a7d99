package cas

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
)

// note is what the session knows about another one.
type note struct {
	revision int64     // of its key
	since    time.Time // when that revision was first seen
	over     bool      // whether that was a session timeout ago
}

// Expire implements session.Expirer. It also removes the nodes of sessions that
// others have ended from the queues that this session uses.
func (s *store) Expire(ctx context.Context) (ended bool, err error) {
	all, err := s.kv.Scan(ctx, "s/")
	if err != nil {
		return false, err
	}
	if !s.note(all) {
		return false, errEnded
	}
	for _, e := range all {
		if s.alive(strings.TrimPrefix(e.Key, "s/")) {
			continue
		}
		_, err := s.kv.Write(ctx, Entry{Key: e.Key, Revision: e.Revision})
		if err != nil && !errors.Is(err, ErrConflict) {
			return ended, err
		}
		ended = ended || err == nil // otherwise it has sent a heartbeat
	}
	return ended, s.prune(ctx, s.graves(false))
}

// note notes the sessions' keys, which were just read, and reports whether that
// of this session is among them.
func (s *store) note(all []Entry) (found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, noted := time.Now(), make(map[string]note)
	for _, e := range all {
		id := strings.TrimPrefix(e.Key, "s/")
		n, ok := s.noted[id]
		if !ok || n.revision != e.Revision {
			n = note{revision: e.Revision, since: now}
		}
		var v sessionValue
		n.over = id != s.id && json.Unmarshal(e.Value, &v) == nil && now.Sub(n.since) >= v.Timeout
		noted[id] = n
	}
	s.noted = noted
	_, found = noted[s.id]
	return found
}

// alive reports whether a session was alive when they were last scanned.
func (s *store) alive(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.noted[id]
	return ok && !n.over
}

// grave is a queue with nodes of a session that may have ended.
type grave struct{ queue, id string }

// graves returns the queues with nodes of other sessions that were not alive in
// the last scan. If own is true, it returns those that may have nodes of this
// session instead.
func (s *store) graves(own bool) (found []grave) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, c := range s.queues {
		if own && !c.doubt && !c.owned(s.id) {
			continue
		}
		ids := c.others(s.id)
		if own {
			ids = []string{s.id}
		}
		for _, id := range ids {
			n, ok := s.noted[id]
			if g := (grave{name, id}); (own || !ok || n.over) && !slices.Contains(found, g) {
				found = append(found, g)
			}
		}
	}
	return found
}

// prune removes the nodes of sessions that have indeed ended.
func (s *store) prune(ctx context.Context, graves []grave) (failed error) {
	for _, v := range graves {
		g := &guard{Entry{Key: sessionKey(v.id)}, false}
		err := s.check(ctx, g)
		if err == nil {
			err = s.remove(ctx, v.queue, g, func(n node) bool { return n.Owner == v.id })
		}
		if !errors.Is(err, errEnded) { // the guard's error if the session lives
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

// meets reports whether another session has a node in a queue that this session
// has used recently.
func (s *store) meets() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.queues {
		if time.Since(c.asked) < s.timeout && len(c.others(s.id)) > 0 {
			return true
		}
	}
	return false
}

// Tidy implements session.Tidier. It removes the keys of queues that have been
// empty since the last call, and forgets those that this session does not use.
// The first call makes no request, so that short sessions do not tidy.
func (s *store) Tidy(ctx context.Context) (more bool, err error) {
	before := s.empty
	s.empty = make(map[string]int64)
	if before == nil {
		return false, nil
	}
	s.mu.Lock()
	maps.DeleteFunc(s.queues, func(_ string, c *cached) bool {
		return time.Since(c.asked) > time.Hour/2 && !c.doubt && !c.owned(s.id)
	})
	s.mu.Unlock()
	_, err = s.Expire(ctx)
	all, scanErr := s.kv.Scan(ctx, "q/")
	for _, e := range all {
		q, decodeErr := decode(e)
		if decodeErr != nil || len(q.Nodes) > 0 {
			continue
		}
		if s.empty[e.Key] = e.Revision; before[e.Key] == e.Revision {
			_, _ = s.kv.Write(ctx, Entry{Key: e.Key, Revision: e.Revision}) // an error leaves it to the next time
		}
	}
	return false, errors.Join(err, scanErr)
}
