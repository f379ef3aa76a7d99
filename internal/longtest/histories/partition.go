package histories

import (
	"cmp"
	"maps"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/dlock-go/dlock/internal/histories"
)

// partition separates the queues, because every lock is linearizable by itself.
// It cuts the history of each queue at instants at which no operation was under
// way.
func partition(history []porcupine.Operation) (parts [][]porcupine.Operation) {
	queues := make(map[string][]porcupine.Operation)
	for _, o := range history {
		queue := o.Input.(operation).Queue
		queues[queue] = append(queues[queue], o)
	}
	for _, queue := range slices.Sorted(maps.Keys(queues)) {
		parts = append(parts, segments(queues[queue], segmentSize)...)
	}
	return parts
}

// segmentSize is the least number of operations in a segment. It is large
// enough for a picture to show what led to a failure.
const segmentSize = 200

// segments cuts a history wherever no operation is under way. The verdict stays
// the same, for two reasons. In every order that agrees with the times of the
// calls, everything before a cut comes before everything after it. And the
// state at the cut is the same in each of these orders: all grants, losses,
// unlocks and downgrades before the cut are over, so the Locks that are still
// held and the highest token do not depend on their order. So each segment
// begins with the state that the segments before it must have left.
func segments(history []porcupine.Operation, size int) (parts [][]porcupine.Operation) {
	history = slices.Clone(history)
	slices.SortStableFunc(history, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var part []porcupine.Operation
	var now state
	var over int64 // the tick at which the last of the operations so far has returned
	for _, o := range history {
		if len(part) >= size && over < o.Call {
			now = now.after(part)
			parts = append(parts, part)
			part = []porcupine.Operation{{Input: operation{Operation: histories.Operation{Kind: resume}, from: now}, Call: over, Return: over}}
		}
		part = append(part, o)
		over = max(over, o.Return)
	}
	return append(parts, part)
}

// after returns the state of the lock after the operations of a segment. It
// does not check that the model allows these operations.
func (s state) after(part []porcupine.Operation) state {
	lost := make(map[int]bool)
	var lowered []operation
	for _, o := range part {
		in := o.Input.(operation)
		switch in.Kind {
		case histories.Grant:
			s = s.granted(in).add(in)
		case histories.Reentry:
			s = s.add(in)
		case histories.Unlocking, histories.Downgrade:
			lowered = append(lowered, in)
		case histories.Loss:
			lost[in.Hold] = true
		case histories.Clearing:
			_, s = s.step(in)
		}
	}
	for _, in := range lowered {
		_, s = s.lower(in)
	}
	s.holders = slices.DeleteFunc(slices.Clone(s.holders), func(h holder) bool { return lost[h.hold] })
	return s
}
