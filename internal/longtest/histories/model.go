package histories

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/histories"
)

// resume is the kind of an operation that sets the state, see segments.
const resume = histories.Clearing + 1

// operation is an operation of a history, for Porcupine.
type operation struct {
	histories.Operation
	from state // of a resume: the state that the operations before it have left
}

func forPorcupine(o histories.Operation) porcupine.Operation {
	return porcupine.Operation{ClientId: o.Actor, Input: operation{Operation: o}, Call: o.Call, Return: o.Return}
}

func (o operation) String() string {
	who := fmt.Sprintf("#%d.%d", o.Hold, o.Handle)
	switch o.Kind {
	case histories.Grant:
		return fmt.Sprintf("%s %v, token %d", who, o.Mode, o.Token)
	case histories.Reentry:
		return fmt.Sprintf("%s again, %v", who, o.Mode)
	case histories.Unlocking:
		return who + " unlocked"
	case histories.Downgrade:
		return who + " to shared"
	case histories.Loss:
		return fmt.Sprintf("#%d lost", o.Hold)
	case histories.Refusal:
		return fmt.Sprintf("#%d no upgrade", o.Hold)
	case histories.Clearing:
		return fmt.Sprintf("all up to token %d removed", o.Token)
	case resume:
		return "from here: " + o.from.String()
	}
	return fmt.Sprintf("%s still %v", who, o.Mode)
}

// holder is one Lock, of type *dlock.Lock, that is held. A contender that has
// re-entered has several. If its node is removed, all of them are lost.
type holder struct {
	hold, handle int
	mode         dlock.Mode
	token        int64 // the token of the grant; 0 for a re-entry
	sharer       int   // the number of the client, if its actors share the node; otherwise 0; also 0 for a re-entry
}

func (h holder) compare(o holder) int {
	return cmp.Or(cmp.Compare(h.hold, o.hold), cmp.Compare(h.handle, o.handle))
}

// state is the state of one lock in the model. A state is never changed, only
// replaced.
type state struct {
	holders []holder // the Locks that are held, sorted by contender and then by Lock
	top     int64    // the highest token granted
	// sharer is the number of the client that was granted the token top, if its
	// actors share nodes. Otherwise it is 0. This client may be granted the
	// token top again.
	sharer  int
	fence   int64 // the highest exclusive token granted
	cleared int64 // the highest token of a node that was removed with its queue; no node with this token or a smaller one can be granted the lock any more
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
	return s.top == o.top && s.sharer == o.sharer && s.fence == o.fence && s.cleared == o.cleared && slices.Equal(s.holders, o.holders)
}

// hash returns the same number for equal states.
func (s state) hash() uint64 {
	h := uint64(s.top)*31 + uint64(s.sharer)*43 + uint64(s.fence)*37 + uint64(s.cleared)*41
	for _, l := range s.holders {
		h = h*1099511628211 + uint64(l.hold<<16+l.handle<<2+int(l.mode))
	}
	return h
}

// mode returns the strongest mode in which a contender holds the lock, or 0 if
// it does not hold the lock.
func (s state) mode(hold int) (mode dlock.Mode) {
	for _, h := range s.holders {
		if h.hold == hold {
			mode = max(mode, h.mode)
		}
	}
	return mode
}

// locks returns how many Locks a contender holds.
func (s state) locks(hold int) (n int) {
	for _, h := range s.holders {
		if h.hold == hold {
			n++
		}
	}
	return n
}

// exclusive reports whether any contender holds the lock exclusively.
func (s state) exclusive() bool {
	return slices.ContainsFunc(s.holders, func(h holder) bool { return h.mode == dlock.Exclusive })
}

func (s state) find(o operation) (at int, found bool) {
	return slices.BinarySearchFunc(s.holders, holder{hold: o.Hold, handle: o.Handle}, holder.compare)
}

func (s state) add(o operation) state {
	at, _ := s.find(o)
	s.holders = slices.Insert(slices.Clone(s.holders), at, holder{o.Hold, o.Handle, o.Mode, o.Token, o.Sharer})
	return s
}

// step reports whether the model allows an operation in the state s, and
// returns the state after the operation.
func (s state) step(o operation) (bool, state) {
	switch o.Kind {
	case histories.Grant:
		return s.grant(o)
	case histories.Reentry:
		return s.reenter(o)
	case histories.Unlocking, histories.Downgrade:
		return s.lower(o)
	case histories.Loss:
		held := s.mode(o.Hold) != 0
		s.holders = slices.DeleteFunc(slices.Clone(s.holders), func(h holder) bool { return h.hold == o.Hold })
		return held, s
	case histories.Refusal:
		return s.mode(o.Hold) == dlock.Shared, s
	case histories.Clearing:
		s.cleared = max(s.cleared, o.Token)
		return true, s
	case resume:
		return true, o.from
	}
	at, found := s.find(o)
	return found && s.holders[at].mode == o.Mode, s
}

// turn reports whether o may be a grant with a node that its client has used
// for a grant before: the goroutines of the client share that node. There are
// two such cases. In the first, the token of that node is still the highest one
// granted. In the second, another goroutine of the client holds the lock with
// that node. Its token may then be lower than that of the latest grant: after a
// downgrade, readers of other clients are granted the lock with higher tokens,
// and then readers of the same client join the downgraded node.
func (s state) turn(o operation) bool {
	if o.Sharer == 0 {
		return false
	}
	return o.Sharer == s.sharer && o.Token == s.top ||
		slices.ContainsFunc(s.holders, func(h holder) bool { return h.sharer == o.Sharer && h.token == o.Token })
}

// grant grants the lock to a contender whose node is its own, or is shared with
// other goroutines of its client (see turn).
func (s state) grant(o operation) (bool, state) {
	turn := s.turn(o)
	if s.exclusive() || o.Token <= s.fence && !turn || o.Token <= s.cleared {
		return false, s
	}
	exclusive := o.Mode == dlock.Exclusive
	ok := !exclusive || len(s.holders) == 0 && (o.Token > s.top || turn)
	return ok, s.granted(o).add(o)
}

// granted returns the state in which the token of a grant is recorded.
func (s state) granted(o operation) state {
	if o.Token > s.top {
		s.top, s.sharer = o.Token, o.Sharer
	}
	if o.Mode == dlock.Exclusive {
		s.fence = max(s.fence, o.Token)
	}
	return s
}

// reenter gives a contender one more Lock. A contender that holds the lock
// shared cannot get it exclusively.
func (s state) reenter(o operation) (bool, state) {
	switch held := s.mode(o.Hold); {
	case held == 0:
		return o.Maybe, s
	case held < o.Mode:
		return false, s
	}
	return true, s.add(o)
}

// lower carries out an Unlock, which takes a Lock from a contender, or a
// Downgrade, which makes the Lock shared. If o.Maybe is true, the lock may have
// been lost before the Unlock. In that case lower leaves the contender its last
// Lock, and the operation of the loss removes that Lock.
func (s state) lower(o operation) (bool, state) {
	at, found := s.find(o)
	switch {
	case !found:
		return o.Maybe, s
	case o.Maybe && o.Kind == histories.Unlocking && s.locks(o.Hold) == 1:
		return true, s
	}
	s.holders = slices.Clone(s.holders)
	if o.Kind == histories.Unlocking {
		s.holders = slices.Delete(s.holders, at, at+1)
	} else {
		s.holders[at].mode = dlock.Shared
	}
	return true, s
}

// model is the model of a lock. Porcupine checks the history of each queue
// against this model.
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
