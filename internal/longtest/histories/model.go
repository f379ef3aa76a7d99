package histories

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/history"
)

type operation struct{ history.Operation }

func forPorcupine(o history.Operation) porcupine.Operation {
	return porcupine.Operation{ClientId: o.Actor, Input: operation{o}, Call: o.Call, Return: o.Return}
}

func (o operation) String() string {
	who := fmt.Sprintf("#%d.%d", o.Hold, o.Handle)
	switch o.Kind {
	case history.Grant:
		if o.Units > 0 {
			return fmt.Sprintf("%s %d units, token %d", who, o.Units, o.Token)
		}
		return fmt.Sprintf("%s %v, token %d", who, o.Mode, o.Token)
	case history.Reentry:
		return fmt.Sprintf("%s again, %v", who, o.Mode)
	case history.Unlocking:
		return who + " unlocked"
	case history.Downgrade:
		return who + " to shared"
	case history.Loss:
		return fmt.Sprintf("#%d lost", o.Hold)
	case history.Refusal:
		return fmt.Sprintf("#%d no upgrade", o.Hold)
	case history.Clearing:
		return fmt.Sprintf("all up to token %d removed", o.Token)
	}
	return fmt.Sprintf("%s still %v", who, o.Mode)
}

// holder is one held Lock. A contender loses all its Locks together.
type holder struct {
	hold, handle int
	mode         dlock.Mode
	units        int // of a semaphore; 0 for a read-write lock
}

func (h holder) compare(o holder) int {
	return cmp.Or(cmp.Compare(h.hold, o.hold), cmp.Compare(h.handle, o.handle))
}

// state is the state of one lock in the model. It is immutable.
type state struct {
	holders []holder // sorted by hold, then by handle
	top     int64    // highest token granted
	fence   int64    // highest token of a writer or semaphore
	cleared int64    // highest of a removed queue; grants exceed it
}

func (s state) String() string {
	text := "free"
	for i, h := range s.holders {
		if i == 0 {
			text = "held:"
		}
		text += fmt.Sprintf(" #%d.%d %v", h.hold, h.handle, h.mode)
	}
	return fmt.Sprintf("%s; highest token %d", text, s.top)
}

func (s state) equal(o state) bool {
	return s.top == o.top && s.fence == o.fence && s.cleared == o.cleared && slices.Equal(s.holders, o.holders)
}

func (s state) hash() uint64 {
	h := uint64(s.top)*31 + uint64(s.fence)*37 + uint64(s.cleared)*41
	for _, l := range s.holders {
		h = h*1099511628211 + uint64(l.hold<<16+l.handle<<2+int(l.mode))
	}
	return h
}

func (s state) mode(hold int) (mode dlock.Mode) {
	for _, h := range s.holders {
		if h.hold == hold {
			mode = max(mode, h.mode)
		}
	}
	return mode
}

func (s state) locks(hold int) (n int) {
	for _, h := range s.holders {
		if h.hold == hold {
			n++
		}
	}
	return n
}

func (s state) readable() bool {
	return !slices.ContainsFunc(s.holders, func(h holder) bool { return h.mode == dlock.Exclusive || h.units > 0 })
}

// free returns the free units, none while the read-write lock of that name is
// held.
func (s state) free() int {
	n := history.Units
	for _, h := range s.holders {
		if h.units == 0 {
			return 0
		}
		n -= h.units
	}
	return n
}

func (s state) find(o operation) (at int, found bool) {
	return slices.BinarySearchFunc(s.holders, holder{hold: o.Hold, handle: o.Handle}, holder.compare)
}

func (s state) add(o operation) state {
	at, _ := s.find(o)
	s.holders = slices.Insert(slices.Clone(s.holders), at, holder{o.Hold, o.Handle, o.Mode, o.Units})
	return s
}

func (s state) step(o operation) (bool, state) {
	switch o.Kind {
	case history.Grant:
		return s.grant(o)
	case history.Reentry:
		return s.reenter(o)
	case history.Unlocking, history.Downgrade:
		return s.lower(o)
	case history.Loss:
		held := s.mode(o.Hold) != 0
		s.holders = slices.DeleteFunc(slices.Clone(s.holders), func(h holder) bool { return h.hold == o.Hold })
		return held, s
	case history.Refusal:
		return s.mode(o.Hold) == dlock.Shared, s
	case history.Clearing:
		s.cleared = max(s.cleared, o.Token)
		return true, s
	}
	at, found := s.find(o)
	return found && s.holders[at].mode == o.Mode, s
}

func (s state) grant(o operation) (bool, state) {
	if o.Token <= s.fence || o.Token <= s.cleared {
		return false, s
	}
	ok := s.readable()
	switch {
	case o.Units > 0:
		ok = o.Units <= s.free() && o.Token > s.top
	case o.Mode == dlock.Exclusive:
		ok = len(s.holders) == 0 && o.Token > s.top
	}
	s.top = max(s.top, o.Token)
	if o.Mode == dlock.Exclusive || o.Units > 0 {
		s.fence = max(s.fence, o.Token)
	}
	return ok, s.add(o)
}

// reenter gives a contender one more Lock. It refuses an upgrade.
func (s state) reenter(o operation) (bool, state) {
	switch held := s.mode(o.Hold); {
	case held == 0:
		return o.Maybe, s
	case held < o.Mode:
		return false, s
	}
	return true, s.add(o)
}

// lower applies an Unlock or Downgrade. With o.Maybe, an Unlock keeps the
// contender's last Lock, so that the history's Loss has something to remove.
func (s state) lower(o operation) (bool, state) {
	at, found := s.find(o)
	switch {
	case !found:
		return o.Maybe, s
	case o.Maybe && o.Kind == history.Unlocking && s.locks(o.Hold) == 1:
		return true, s
	}
	s.holders = slices.Clone(s.holders)
	if o.Kind == history.Unlocking {
		s.holders = slices.Delete(s.holders, at, at+1)
	} else {
		s.holders[at].mode = dlock.Shared
	}
	return true, s
}

// partition splits a history by queue, because smaller parts are much faster to
// search.
func partition(all []porcupine.Operation) [][]porcupine.Operation {
	queues := make(map[string][]porcupine.Operation)
	for _, o := range all {
		queue := o.Input.(operation).Queue
		queues[queue] = append(queues[queue], o)
	}
	return slices.Collect(maps.Values(queues))
}

var model = porcupine.Model{
	Partition: partition,
	Init:      func() any { return state{} },
	Step: func(s, in, _ any) (bool, any) {
		ok, after := s.(state).step(in.(operation))
		return ok, after
	},
	Equal:             func(a, b any) bool { return a.(state).equal(b.(state)) },
	Hash:              func(s any) uint64 { return s.(state).hash() },
	DescribeOperation: func(in, _ any) string { return in.(operation).String() },
	DescribeState:     func(s any) string { return s.(state).String() },
}
