package history

import (
	"errors"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
)

const (
	r = dlock.Shared
	w = dlock.Exclusive
)

// Operations of the queue "q", from their call to their return.

func at(call, ret int64, o operation) porcupine.Operation {
	if o.queue == "" {
		o.queue = "q"
	}
	return porcupine.Operation{ClientId: o.hold, Input: o, Call: call, Return: ret}
}

func won(call, ret int64, hold int, mode dlock.Mode, token int64) porcupine.Operation {
	return at(call, ret, operation{kind: grant, hold: hold, mode: mode, token: token})
}

func gone(call, ret int64, hold int) porcupine.Operation {
	return at(call, ret, operation{kind: release, hold: hold})
}

func lowered(call, ret int64, hold int) porcupine.Operation {
	return at(call, ret, operation{kind: downgrade, hold: hold})
}

func perhapsLowered(call, ret int64, hold int) porcupine.Operation {
	return at(call, ret, operation{kind: downgrade, hold: hold, maybe: true})
}

func still(call, ret int64, hold int, mode dlock.Mode) porcupine.Operation {
	return at(call, ret, operation{kind: answer, hold: hold, mode: mode})
}

func cleared(call, ret, token int64) porcupine.Operation {
	return at(call, ret, operation{kind: clearing, token: token})
}

func elsewhere(o porcupine.Operation) porcupine.Operation {
	in := o.Input.(operation)
	in.queue = "elsewhere"
	o.Input = in
	return o
}

type operations = []porcupine.Operation

func TestTheModelAllowsWhatALockMayDo(t *testing.T) {
	for name, ops := range map[string]operations{
		"nothing":                           {},
		"one writer":                        {won(1, 2, 1, w, 1), still(3, 4, 1, w), gone(5, 6, 1)},
		"a writer who stays":                {won(1, 2, 1, w, 1)},
		"a writer after the other":          {won(1, 2, 1, w, 1), gone(3, 4, 1), won(5, 6, 2, w, 2)},
		"a writer who waits":                {won(1, 2, 1, w, 1), won(2, 8, 2, w, 2), still(4, 4, 1, w), gone(5, 6, 1), gone(9, 10, 2)},
		"in before Unlock has returned":     {won(1, 2, 1, w, 1), gone(3, 9, 1), won(4, 5, 2, w, 2), still(6, 7, 2, w)},
		"readers together":                  {won(1, 2, 1, r, 1), won(3, 4, 2, r, 2), gone(5, 6, 2), gone(7, 8, 1)},
		"readers in any order of tokens":    {won(1, 2, 2, r, 2), won(3, 4, 1, r, 1)},
		"readers let in by a downgrade":     {won(1, 2, 1, w, 1), lowered(3, 8, 1), won(4, 5, 2, r, 2), still(6, 6, 1, r)},
		"a downgrade that came late":        {won(1, 2, 1, w, 1), perhapsLowered(3, 9, 1), still(5, 5, 1, w), won(4, 7, 2, r, 2), gone(8, 9, 1)},
		"a downgrade that came to nothing":  {won(1, 2, 1, w, 1), gone(3, 4, 1), perhapsLowered(5, 6, 1), won(5, 6, 2, w, 2)},
		"a loss, others in before it shows": {won(1, 2, 1, w, 1), gone(3, 9, 1), won(4, 5, 2, w, 2), gone(6, 7, 2), won(7, 8, 3, r, 3)},
		"won before the queue was removed":  {won(1, 6, 1, w, 1), cleared(3, 3, 1), gone(4, 5, 1), won(6, 7, 2, w, 2)},
		"another queue has its own tokens":  {won(1, 2, 1, w, 9), elsewhere(won(3, 4, 2, w, 2))},
		"taken away while it was being won": {won(1, 9, 1, w, 1), gone(2, 10, 1), won(3, 4, 2, w, 2)},
		"a reader's token below a reader's": {won(1, 2, 1, w, 1), gone(3, 4, 1), won(5, 6, 3, r, 3), won(7, 8, 2, r, 2)},
	} {
		t.Run(name, func(t *testing.T) { require.True(t, porcupine.CheckOperations(model, ops)) })
	}
}

func TestTheModelForbidsWhatALockMustNotDo(t *testing.T) {
	for name, ops := range map[string]operations{
		"two writers":                         {won(1, 2, 1, w, 1), won(3, 4, 2, w, 2), gone(5, 6, 1), gone(7, 8, 2)},
		"two writers who stay":                {won(1, 5, 1, w, 1), won(2, 4, 2, w, 2)},
		"a reader beside a writer":            {won(1, 2, 1, w, 1), won(3, 4, 2, r, 2), gone(5, 6, 1)},
		"a writer beside a reader":            {won(1, 2, 1, r, 1), won(3, 4, 2, w, 2), gone(5, 6, 1)},
		"a writer after a downgrade":          {won(1, 2, 1, w, 1), lowered(3, 4, 1), won(5, 6, 2, w, 2), gone(7, 8, 1)},
		"a reader before a downgrade":         {won(1, 2, 1, w, 1), won(3, 4, 2, r, 2), lowered(5, 6, 1)},
		"exclusive after its downgrade":       {won(1, 2, 1, w, 1), lowered(3, 4, 1), still(5, 6, 1, w)},
		"a downgrade of what was not held":    {lowered(1, 2, 1)},
		"exclusive although a reader was in":  {won(1, 2, 1, w, 1), perhapsLowered(3, 9, 1), won(4, 5, 2, r, 2), still(6, 7, 1, w), gone(10, 11, 2)},
		"still held although a writer was in": {won(1, 2, 1, w, 1), gone(3, 9, 1), won(4, 5, 2, w, 2), still(6, 7, 1, w)},
		"still held after the release":        {won(1, 2, 1, w, 1), gone(3, 4, 1), still(5, 6, 1, w)},
		"in before the cause of a loss":       {won(1, 2, 1, w, 1), won(3, 4, 2, w, 2), gone(5, 9, 1)},
		"released twice":                      {won(1, 2, 1, w, 1), gone(3, 4, 1), gone(5, 6, 1)},
		"a writer's token falls":              {won(1, 2, 1, w, 2), gone(3, 4, 1), won(5, 6, 2, w, 1)},
		"a writer's token comes again":        {won(1, 2, 1, w, 1), gone(3, 4, 1), won(5, 6, 2, w, 1)},
		"a writer passes a reader of before":  {won(1, 2, 1, r, 2), gone(3, 4, 1), won(5, 6, 2, w, 1)},
		"a reader's token below a writer's":   {won(1, 2, 1, w, 2), gone(3, 4, 1), won(5, 6, 2, r, 1)},
		"won after its node was removed":      {won(1, 2, 1, w, 1), won(1, 8, 2, w, 2), cleared(3, 3, 2), gone(4, 5, 1)},
		"the other queue does not make up":    {won(1, 2, 1, w, 1), elsewhere(won(1, 2, 2, w, 2)), won(3, 4, 3, w, 3)},
	} {
		t.Run(name, func(t *testing.T) { require.False(t, porcupine.CheckOperations(model, ops)) })
	}
}

// What the recorder makes of causes.

func held(client int, id int, granted span) *hold {
	return &hold{id: id, client: client, queue: "q", node: "n", mode: w, token: int64(id), granted: granted}
}

func after(c cause, call, ret int64) cause {
	c.span = span{call, ret}
	return c
}

func TestAnAnswerAfterASilentCauseSaysNothing(t *testing.T) {
	removed := cause{client: -1, queue: "q", node: "n"}
	silenced := cause{client: 1, told: true}
	for name, c := range map[string]struct {
		cause cause
		ok    bool
	}{
		"removed by an operator":          {after(removed, 3, 4), true},
		"removed too late to explain it":  {after(removed, 9, 9), false},
		"another node":                    {after(cause{client: -1, queue: "q", node: "m"}, 3, 4), false},
		"another queue":                   {after(cause{client: -1, queue: "p"}, 3, 4), false},
		"the session must have been told": {after(silenced, 3, 4), false},
	} {
		t.Run(name, func(t *testing.T) {
			first, second := held(1, 1, span{1, 2}), held(2, 2, span{5, 6})
			second.node = "other"
			first.answers = []seen{{span{7, 8}, w}}
			first.learned = 10
			rec := &recorder{clock: 10, holds: []*hold{first, second}, causes: []cause{c.cause}}
			require.Equal(t, c.ok, linearizable(rec))
		})
	}
}

func TestALossWithoutACauseIsReported(t *testing.T) {
	h := held(1, 1, span{1, 2})
	h.given = &ending{span{5, 6}, errors.Join(dlock.ErrLost)}
	rec := &recorder{clock: 6, holds: []*hold{h}}
	require.False(t, linearizable(rec))
	rec.causes = []cause{after(cause{client: 1, told: true}, 3, 4)}
	require.True(t, linearizable(rec))
}
