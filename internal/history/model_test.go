package history

import (
	"fmt"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/dlock-go/dlock"
)

// kind is what an operation does.
type kind int

const (
	grant kind = iota
	release
	downgrade
	answer
	clearing
)

// operation is what the model is given of an operation, the results included.
type operation struct {
	kind  kind
	queue string
	hold  int        // tells holders apart: every grant is another one
	mode  dlock.Mode // of a grant: as asked for; of an answer: as seen
	token int64      // of a grant; of a clearing: the highest that was removed
	maybe bool       // of a downgrade: it may be that nothing came of it
}

func (o operation) String() string {
	switch o.kind {
	case grant:
		return fmt.Sprintf("#%d %v, token %d", o.hold, o.mode, o.token)
	case release:
		return fmt.Sprintf("#%d gone", o.hold)
	case downgrade:
		return fmt.Sprintf("#%d to shared", o.hold)
	case clearing:
		return fmt.Sprintf("all up to token %d removed", o.token)
	}
	return fmt.Sprintf("#%d still %v", o.hold, o.mode)
}

// state is a read-write lock. It is never changed, only replaced.
type state struct {
	writer  int   // 0: none
	readers []int // in order
	top     int64 // the highest token granted
	fence   int64 // the highest exclusive token granted
	cleared int64 // up to this token nothing is left that can be granted
}

func (s state) String() string {
	switch {
	case s.writer != 0:
		return fmt.Sprintf("exclusive: #%d", s.writer)
	case len(s.readers) > 0:
		return fmt.Sprintf("shared: #%d", s.readers)
	}
	return "free"
}

func (s state) equal(o state) bool {
	return s.writer == o.writer && s.top == o.top && s.fence == o.fence && s.cleared == o.cleared && slices.Equal(s.readers, o.readers)
}

// mode returns how somebody holds the lock, 0 if not at all.
func (s state) mode(hold int) dlock.Mode {
	switch {
	case s.writer == hold:
		return dlock.Exclusive
	case slices.Contains(s.readers, hold):
		return dlock.Shared
	}
	return 0
}

func (s state) add(hold int) state {
	i, _ := slices.BinarySearch(s.readers, hold)
	s.readers = slices.Insert(slices.Clone(s.readers), i, hold)
	return s
}

func (s state) remove(hold int) state {
	if s.writer == hold {
		s.writer = 0
		return s
	}
	s.readers = slices.DeleteFunc(slices.Clone(s.readers), func(h int) bool { return h == hold })
	return s
}

// step returns the state after an operation, and whether the lock may have done it.
func (s state) step(o operation) (bool, state) {
	switch o.kind {
	case grant:
		return s.grant(o)
	case release:
		return s.mode(o.hold) != 0, s.remove(o.hold)
	case downgrade:
		if s.writer != o.hold {
			return o.maybe, s
		}
		return true, s.remove(o.hold).add(o.hold)
	case clearing:
		s.cleared = max(s.cleared, o.token)
		return true, s
	}
	return s.mode(o.hold) == o.mode, s
}

func (s state) grant(o operation) (bool, state) {
	if s.writer != 0 || o.token <= s.fence || o.token <= s.cleared {
		return false, s
	}
	if o.mode == dlock.Exclusive {
		ok := len(s.readers) == 0 && o.token > s.top
		s.writer, s.top, s.fence = o.hold, o.token, o.token
		return ok, s
	}
	s.top = max(s.top, o.token)
	return true, s.add(o.hold)
}

// model is the lock of each queue, for porcupine.
var model = porcupine.Model{
	Partition: func(history []porcupine.Operation) (parts [][]porcupine.Operation) {
		number := make(map[string]int)
		for _, o := range history {
			queue := o.Input.(operation).queue
			if _, known := number[queue]; !known {
				number[queue] = len(parts)
				parts = append(parts, nil)
			}
			parts[number[queue]] = append(parts[number[queue]], o)
		}
		return parts
	},
	Init: func() any { return state{} },
	Step: func(s, in, _ any) (bool, any) {
		ok, after := s.(state).step(in.(operation))
		return ok, after
	},
	Equal:             func(a, b any) bool { return a.(state).equal(b.(state)) },
	DescribeOperation: func(in, _ any) string { return in.(operation).String() },
	DescribeState:     func(s any) string { return s.(state).String() },
}
