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

// holding is an acquisition reconstructed from a journal. Each nil Err in the
// journal proves that the lock was held from the grant up to that time.
type holding struct {
	worker    string
	id        int64
	lock, how string
	node      string
	token     int64
	exclusive bool // as acquired, before any downgrade
	held      bool // confirmed at least once

	asked       time.Duration
	from, to    time.Duration // first and last confirmation
	downgrading time.Duration // when a downgrade began, or 0
	lossSeen    time.Duration // when the worker noticed the loss, or 0
	unlocked    time.Duration // an instant just before Unlock, or 0 if never called
	ended       time.Duration // when the worker stopped using the lock; 0 if it was killed first
	removedAt   time.Duration // when an operator began to remove its node, or 0
	removedBy   time.Duration // when its node was certainly gone, or 0
	refusedAt   time.Duration // when a nil Err followed a refusal by the counter, or 0
	incremented bool
}

func (h *holding) String() string {
	mode := "shared"
	if h.exclusive {
		mode = "exclusive"
	}
	return fmt.Sprintf("%s #%d (%s, %s, %s, token %d, confirmed from %v to %v)", h.worker, h.id, h.lock, mode, h.node, h.token, h.from, h.to)
}

// exclusiveTo returns when the lock was last known to be exclusive. For a
// shared lock, that is before its first confirmation.
func (h *holding) exclusiveTo() time.Duration {
	switch {
	case !h.exclusive:
		return h.from - 1
	case h.downgrading != 0:
		return min(h.downgrading, h.to)
	}
	return h.to
}

func holdings(worker string, events []event) []*holding {
	byID := make(map[int64]*holding)
	var all []*holding
	for _, e := range events {
		if e.Kind == asked {
			byID[e.Hold] = &holding{worker: worker, id: e.Hold, lock: e.Lock, how: e.How, asked: e.At}
			continue
		}
		if h := byID[e.Hold]; h != nil {
			h.addEvent(e)
			if e.Kind == granted {
				all = append(all, h)
			}
		}
	}
	return all
}

// addEvent applies a journal entry to the holding. Entries of the background
// watcher may be out of order.
func (h *holding) addEvent(e event) {
	confirm := func() { h.to = max(h.to, e.At) }
	switch e.Kind {
	case granted:
		h.node, h.token, h.exclusive, h.held = e.Node, e.Token, e.Mode == "exclusive", e.Held
		h.from, h.to = e.At, e.At
	case confirmed:
		confirm()
	case downgrading:
		confirm()
		h.downgrading = e.At
	case lossSeen:
		h.lossSeen, h.ended = e.At, e.At
	case released:
		h.unlocked = e.At
		h.ended = max(h.ended, e.At)
		if e.Held && h.held {
			confirm()
		}
	case stale:
		if e.Held {
			h.refusedAt = e.At
		}
	case incremented:
		h.incremented = true
	}
}

// remove records that an operator removed a node, which ends its owner's right
// to the lock.
func remove(all []*holding, e event) {
	for _, h := range all {
		if h.lock == e.Lock && sameNode(h.node, e.Node) && h.asked < e.At && (h.ended == 0 || h.ended >= e.At) {
			h.removedAt, h.removedBy = e.At, e.Until
		}
	}
}

// sameNode reports whether both names belong to one node. A downgrade renames a
// node but keeps host and sequence.
func sameNode(a, b string) bool {
	hostA, seqA, _ := driver.ParseName(a)
	hostB, seqB, _ := driver.ParseName(b)
	return seqA == seqB && strings.TrimRight(hostA, "RW-") == strings.TrimRight(hostB, "RW-")
}

// judgeLock returns a description of every violation in the acquisitions of one
// lock, up to a limit.
func judgeLock(all []*holding) (wrong []string) {
	const enough = 10 // more reports than this do not help to find the cause
	report := func(format string, args ...any) {
		if len(wrong) < enough {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	slices.SortFunc(all, func(a, b *holding) int { return cmp.Compare(a.from, b.from) })
	writers := make(map[int64]*holding) // by token: latest exclusive holding
	// last is the earlier holding that was confirmed latest. lastExclusive
	// is the earlier holding that was confirmed latest as exclusive.
	var last, lastExclusive *holding
	// highest and highestWriter are the earlier holdings with the highest
	// token, in any mode and in exclusive mode.
	var highest, highestWriter *holding
	for _, h := range all {
		if other := writers[h.token]; other != nil && h.exclusive {
			report("one token for two: %v; %v", other, h)
		}
		if h.exclusive {
			writers[h.token] = h
		}
		h = cutAtRemoval(h)
		if h == nil {
			continue
		}
		if h.refusedAt != 0 && h.removedAt == 0 {
			report("the counter has seen a higher token, and %v was confirmed at %v, after that", h, h.refusedAt)
		}
		before, beforeToken := lastExclusive, highestWriter
		if h.exclusive {
			before, beforeToken = last, highest
		}
		if before != nil && before.end(h.exclusive) >= h.from {
			report("two at once for at least %v: %v; %v", min(before.end(h.exclusive), h.to)-h.from, before, h)
		}
		if beforeToken != nil && beforeToken.token >= h.token && h.removedAt == 0 {
			report("not in the order of tokens: %v; %v", beforeToken, h)
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

// cutAtRemoval returns the part of a holding before an operator removed its
// node. It returns nil if nothing is left of the holding.
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

// end returns the time until which the holding excludes other contenders. If
// exclusively is set, only contenders that want the lock exclusively count. A
// downgraded holding no longer excludes the others.
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

// judge returns a description of every violation in the round.
func (s *round) judge() (wrong []string) {
	report := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	names, err := filepath.Glob(filepath.Join(s.dir, "*.journal"))
	s.must(err)
	byLock := make(map[string][]*holding)
	increments := make(map[string]int64)
	var removals []event
	for _, name := range names {
		events, err := readJournal(name)
		s.must(err)
		worker := strings.TrimSuffix(filepath.Base(name), ".journal")
		if worker == testJournal {
			removals = slices.DeleteFunc(events, func(e event) bool { return e.Kind != removed })
			continue
		}
		s.figures.count(events)
		for _, e := range events {
			switch e.Kind {
			case fault:
				report("%s: %s", worker, e.Text)
			case stuck:
				s.stuck = append(s.stuck, worker+": "+e.Text)
			}
		}
		for _, h := range holdings(worker, events) {
			byLock[h.lock] = append(byLock[h.lock], h)
			if h.incremented {
				increments[h.lock]++
			}
		}
	}
	for _, e := range removals {
		remove(byLock[e.Lock], e)
	}
	sequenceRestarts := s.figures.sequenceRestarts
	for lock, all := range byLock {
		wrong = append(wrong, judgeLock(all)...)
		s.figures.measure(all)
		wrong = append(wrong, s.judgeCounters(lock, increments[lock])...)
	}
	if s.diverged() {
		// In a round that was cut short, stuck calls and missing events prove
		// nothing.
		return wrong
	}
	wrong = append(wrong, s.stuck...)
	if *faults == "" && s.figures.sequenceRestarts == sequenceRestarts {
		report("the sequences of no queue have started over")
	}
	return wrong
}

func (s *round) judgeCounters(lock string, increments int64) (wrong []string) {
	checked, err := checkedCounter(s.dir, lock).read()
	s.must(err)
	unchecked, err := uncheckedCounter(s.dir, lock).read()
	s.must(err)
	if checked.lost() != 0 {
		wrong = append(wrong, fmt.Sprintf("%s: the counter that checks tokens has lost updates: %+v", lock, checked))
	}
	if checked.Writes < increments {
		wrong = append(wrong, fmt.Sprintf("%s: the counter has confirmed %d writes to workers and taken fewer: %+v", lock, increments, checked))
	}
	f := s.figures
	f.writes += checked.Writes
	f.refusedTokens += checked.Refused
	f.uncheckedWrites += unchecked.Writes
	f.lostWith += checked.lost()
	f.lostWithout += unchecked.lost()
	return wrong
}
