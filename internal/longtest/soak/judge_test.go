//go:build linux || darwin

package soak

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// holding is one acquisition of one worker, as its journal tells it.
type holding struct {
	worker    string
	id        int64
	lock, how string
	node      string
	token     int64
	exclusive bool // at first
	held      bool // it was believed in at all

	asked       time.Duration
	from, to    time.Duration // believed in at both instants, and so between them
	downgrading time.Duration // believed in as exclusive until then, or 0
	told        time.Duration // of its loss, or 0
	unlocked    time.Duration // before Unlock was called, or 0
	ended       time.Duration // nothing was done under it after that; 0 if the worker was killed
	removedAt   time.Duration // when an operator began to remove its node, or 0
	removedBy   time.Duration // when its node was certainly gone, or 0
	refusedAt   time.Duration // when the counter refused its token although it was believed in, or 0
	bumped      bool
}

func (h *holding) String() string {
	mode := "shared"
	if h.exclusive {
		mode = "exclusive"
	}
	return fmt.Sprintf("%s #%d (%s, %s, %s, token %d, believed in from %v to %v)", h.worker, h.id, h.lock, mode, h.node, h.token, h.from, h.to)
}

// exclusiveTo is when it was last believed in as exclusive; before the beginning if it never was.
func (h *holding) exclusiveTo() time.Duration {
	switch {
	case !h.exclusive:
		return h.from - 1
	case h.downgrading != 0:
		return min(h.downgrading, h.to)
	}
	return h.to
}

// holdings reads the acquisitions out of a worker's journal.
func holdings(worker string, events []event) []*holding {
	byID := make(map[int64]*holding)
	var all []*holding
	for _, e := range events {
		if e.Kind == asked {
			byID[e.Hold] = &holding{worker: worker, id: e.Hold, lock: e.Lock, how: e.How, asked: e.At}
			continue
		}
		if h := byID[e.Hold]; h != nil {
			h.take(e)
			if e.Kind == granted {
				all = append(all, h)
			}
		}
	}
	return all
}

// take adds what an event says. The events of one holding are in the order of what happened; but those of a watcher
// may be written a little later than others.
func (h *holding) take(e event) {
	believes := func() { h.to = max(h.to, e.At) }
	switch e.Kind {
	case granted:
		h.node, h.token, h.exclusive, h.held = e.Node, e.Token, e.Mode == "exclusive", e.Held
		h.from, h.to = e.At, e.At
	case believed:
		believes()
	case downgrading:
		believes()
		h.downgrading = e.At
	case told:
		h.told, h.ended = e.At, e.At
	case released:
		h.unlocked = e.At
		h.ended = max(h.ended, e.At)
		if e.Held && h.held {
			believes()
		}
	case stale:
		if e.Held {
			h.refusedAt = e.At
		}
	case bumped:
		h.bumped = true
	}
}

// remove takes into account that an operator has removed a node: from then on the next one may be let in.
func remove(all []*holding, e event) {
	for _, h := range all {
		if h.lock == e.Lock && sameNode(h.node, e.Node) && h.asked < e.At && (h.ended == 0 || h.ended >= e.At) {
			h.removedAt, h.removedBy = e.At, e.Until
		}
	}
}

// sameNode tells whether two names are of one node, which may have been downgraded between.
func sameNode(a, b string) bool {
	hostA, seqA, _ := driver.ParseName(a)
	hostB, seqB, _ := driver.ParseName(b)
	return seqA == seqB && strings.TrimRight(hostA, "RW-") == strings.TrimRight(hostB, "RW-")
}

// judgeLock returns what was wrong with the acquisitions of one lock.
func judgeLock(all []*holding) (wrong []string) {
	const enough = 10 // one is, but more of them help to understand it
	complain := func(format string, args ...any) {
		if len(wrong) < enough {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	slices.SortFunc(all, func(a, b *holding) int { return cmp.Compare(a.from, b.from) })
	writers := make(map[int64]*holding) // by token
	var last, lastExclusive *holding    // of those before, who was believed in for longest
	var highest, highestWriter *holding // of those before, whose token is the highest
	for _, h := range all {
		if other := writers[h.token]; other != nil && h.exclusive {
			complain("one token for two: %v; %v", other, h)
		}
		if h.exclusive {
			writers[h.token] = h
		}
		h = cutAtRemoval(h)
		if h == nil {
			continue
		}
		if h.refusedAt != 0 && h.removedAt == 0 {
			complain("the counter has seen a higher token, and %v was believed in at %v, after that", h, h.refusedAt)
		}
		before, beforeToken := lastExclusive, highestWriter
		if h.exclusive {
			before, beforeToken = last, highest
		}
		if before != nil && before.end(h.exclusive) >= h.from {
			complain("two at once for at least %v: %v; %v", min(before.end(h.exclusive), h.to)-h.from, before, h)
		}
		if beforeToken != nil && beforeToken.token >= h.token && h.removedAt == 0 {
			complain("not in the order of tokens: %v; %v", beforeToken, h)
		}
		last, lastExclusive = later(last, h, false), later(lastExclusive, h, true)
		if h.removedAt == 0 {
			highest = higher(highest, h)
			if h.exclusive {
				highestWriter = higher(highestWriter, h)
			}
		}
	}
	return wrong
}

// cutAtRemoval returns the holding as far as it counts: nothing of it if it never was believed in.
func cutAtRemoval(h *holding) *holding {
	if !h.held {
		return nil
	}
	if h.removedAt == 0 {
		return h
	}
	if h.removedAt < h.from {
		return nil
	}
	cut := *h
	cut.to = min(h.to, h.removedAt)
	return &cut
}

// end is how long it was in the way of somebody who wants the lock exclusively, or shared.
func (h *holding) end(exclusively bool) time.Duration {
	if exclusively {
		return h.to
	}
	return h.exclusiveTo()
}

func later(a, b *holding, exclusive bool) *holding {
	if exclusive && !b.exclusive || a != nil && a.end(!exclusive) >= b.end(!exclusive) {
		return a
	}
	return b
}

func higher(a, b *holding) *holding {
	if a != nil && a.token >= b.token {
		return a
	}
	return b
}

// judge looks at everything that a sitting has left behind.
func (s *sitting) judge() {
	names, err := filepath.Glob(filepath.Join(s.dir, "*.journal"))
	s.must(err)
	byLock := make(map[string][]*holding)
	bumps := make(map[string]int64)
	var removals []event
	for _, name := range names {
		events, err := readJournal(name)
		s.must(err)
		worker := strings.TrimSuffix(filepath.Base(name), ".journal")
		if worker == crewName {
			removals = slices.DeleteFunc(events, func(e event) bool { return e.Kind != removed })
			continue
		}
		s.judgeWorker(worker, events)
		for _, h := range holdings(worker, events) {
			byLock[h.lock] = append(byLock[h.lock], h)
			if h.bumped {
				bumps[h.lock]++
			}
		}
	}
	for _, e := range removals {
		remove(byLock[e.Lock], e)
	}
	startedOver := s.figures.startedOver
	for lock, all := range byLock {
		for _, wrong := range judgeLock(all) {
			s.complain("%s", wrong)
		}
		s.figures.measure(all)
		s.judgeCounters(lock, bumps[lock])
	}
	if *faults == "" && s.figures.startedOver == startedOver {
		s.complain("the sequences of no queue have started over")
	}
}

func (s *sitting) judgeWorker(worker string, events []event) {
	s.figures.count(events)
	for _, e := range events {
		if e.Kind == fault {
			s.complain("%s: %s", worker, e.Told)
		}
	}
}

func (s *sitting) judgeCounters(lock string, bumps int64) {
	checked, err := checkedCounter(s.dir, lock).read()
	s.must(err)
	unchecked, err := uncheckedCounter(s.dir, lock).read()
	s.must(err)
	if checked.lost() != 0 {
		s.complain("%s: the counter that checks tokens has lost updates: %+v", lock, checked)
	}
	if checked.Writes < bumps {
		s.complain("%s: workers were told of %d writes: %+v", lock, bumps, checked)
	}
	f := s.figures
	f.writes += checked.Writes
	f.refusedTokens += checked.Refused
	f.uncheckedWrites += unchecked.Writes
	f.lostWith += checked.lost()
	f.lostWithout += unchecked.lost()
}
