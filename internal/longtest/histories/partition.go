package histories

import (
	"cmp"
	"maps"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/dlock-go/dlock/internal/history"
)

// partition splits a history by queue and, within each queue, where no
// operation is in flight. Smaller parts are much faster to search.
func partition(all []porcupine.Operation) (parts [][]porcupine.Operation) {
	queues := make(map[string][]porcupine.Operation)
	for _, o := range all {
		queue := o.Input.(operation).Queue
		queues[queue] = append(queues[queue], o)
	}
	for _, queue := range slices.Sorted(maps.Keys(queues)) {
		parts = append(parts, segments(queues[queue], segmentSize)...)
	}
	return parts
}

// segmentSize is the minimum number of operations in a segment, so that a
// picture of a failure also shows what led to it.
const segmentSize = 200

// segments splits a history wherever no operation is in flight. That does not
// change the verdict, because no valid order moves an operation across such a
// point. Each segment starts with the state that the operations before it must
// have left.
func segments(all []porcupine.Operation, size int) (parts [][]porcupine.Operation) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	var part []porcupine.Operation
	var now state
	var over int64 // when the last operation so far returned
	for _, o := range all {
		if len(part) >= size && over < o.Call {
			now = now.after(part)
			parts = append(parts, part)
			part = []porcupine.Operation{{Input: operation{Operation: history.Operation{Kind: resume}, from: now}, Call: over, Return: over}}
		}
		part = append(part, o)
		over = max(over, o.Return)
	}
	return append(parts, part)
}

// after returns the state after a segment, assuming that the model allows it.
func (s state) after(part []porcupine.Operation) state {
	lost := make(map[int]bool)
	var lowered []operation
	for _, o := range part {
		in := o.Input.(operation)
		switch in.Kind {
		case history.Grant:
			s = s.granted(in).add(in)
		case history.Reentry:
			s = s.add(in)
		case history.Unlocking, history.Downgrade:
			lowered = append(lowered, in)
		case history.Loss:
			lost[in.Hold] = true
		case history.Clearing:
			_, s = s.step(in)
		}
	}
	for _, in := range lowered {
		_, s = s.lower(in)
	}
	s.holders = slices.DeleteFunc(slices.Clone(s.holders), func(h holder) bool { return lost[h.hold] })
	return s
}
