package history

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
)

const (
	r = dlock.Shared
	w = dlock.Exclusive
)

// Package histories judges these handwritten histories, and must refuse those
// that are not allowed.

func held(slot, id int, granted span) *contender {
	c := &contender{id: id, client: &client{slot: slot}, queue: "q", node: "n", mode: w, token: int64(id), granted: granted}
	c.handles = []*handle{{contender: c, mode: w, entered: granted}}
	return c
}

func after(c cause, call, ret int64) cause {
	c.span = span{call, ret}
	return c
}

// pair grants its second contender the lock while the first may still hold it.
type pair struct {
	first, second *contender
	*recorder
}

func TestALossNeedsACause(t *testing.T) {
	removed := cause{slot: -1, queue: "q", node: "n"}
	silenced := cause{slot: 1, told: true}
	// The first contender claims the lock at [7, 8] and notices its loss at 10.
	believes := func(c cause) func(p *pair) {
		return func(p *pair) {
			p.second.node, p.first.learned, p.causes = "other", 10, []cause{c}
			p.first.handles[0].answers = []seen{{span{7, 8}, 1, w}}
		}
	}
	// The contender claims the lock in the given span. Its client closes at
	// [5, 11].
	closed := func(answer span) func(p *pair) {
		return func(p *pair) {
			p.second.granted, p.second.handles[0].entered = span{5, 8}, span{5, 8}
			p.first.client.closed = &ending{span: span{5, 11}}
			p.first.handles[0].answers = []seen{{answer, 1, w}}
			p.second.handles[0].answers = []seen{{span{9, 9}, 2, w}}
		}
	}
	// The first contender's Unlock returns err, during a close or the loss of
	// its session.
	unlocked := func(err error, isClosed bool, won span) func(p *pair) {
		return func(p *pair) {
			p.second.granted, p.second.handles[0].entered = won, won
			p.first.handles[0].given = &ending{span: span{5, 10}, err: err}
			if isClosed {
				p.first.client.closed = &ending{span: span{7, 9}}
			} else {
				p.first.learned, p.causes = 10, []cause{after(silenced, 7, 8)}
			}
		}
	}
	doubtful := fmt.Errorf("%w: %w", dlock.ErrUnlock, dlock.ErrClosed)
	for name, c := range map[string]struct {
		change  func(p *pair)
		allowed bool
	}{
		"removed by an operator":                   {believes(after(removed, 3, 4)), true},
		"removed too late to explain it":           {believes(after(removed, 9, 9)), false},
		"another node":                             {believes(after(cause{slot: -1, queue: "q", node: "m"}, 3, 4)), false},
		"another queue":                            {believes(after(cause{slot: -1, queue: "p"}, 3, 4)), false},
		"the session must have known":              {believes(after(silenced, 3, 4)), false},
		"held before a close":                      {closed(span{3, 4}), true},
		"held during a close":                      {closed(span{6, 7}), true},
		"held in a close, after another grant":     {closed(span{9, 10}), false},
		"held after a close":                       {closed(span{12, 13}), false},
		"unlocked, granted before a close":         {unlocked(doubtful, true, span{4, 6}), true},
		"unlocked, granted before that":            {unlocked(doubtful, true, span{4, 4}), false},
		"lost in a close, granted before it":       {unlocked(dlock.ErrLost, true, span{4, 6}), false},
		"lost in a close, granted in it":           {unlocked(dlock.ErrLost, true, span{4, 8}), true},
		"lost in an Unlock, granted before a loss": {unlocked(dlock.ErrLost, false, span{4, 6}), true},
		"lost in an Unlock, granted before that":   {unlocked(dlock.ErrLost, false, span{4, 4}), false},
	} {
		t.Run(name, func(t *testing.T) {
			p := &pair{held(1, 1, span{1, 2}), held(2, 2, span{5, 6}), &recorder{clock: 20}}
			p.contenders = []*contender{p.first, p.second}
			c.change(p)
			record := p.record(strings.ReplaceAll(t.Name(), "/", " "), "made by hand", nil)
			if !c.allowed {
				record.Broken = 1
			}
			_, record.Wrong = p.history()
			record.save(t)
		})
	}
	h := held(1, 1, span{1, 2})
	h.handles[0].given, h.learned = &ending{span: span{5, 6}, err: dlock.ErrLost}, 6
	rec := &recorder{clock: 6, contenders: []*contender{h}}
	require.NotEmpty(t, rec.record("", "", nil).Wrong)
	rec.causes = []cause{after(silenced, 3, 4)}
	require.Empty(t, rec.record("", "", nil).Wrong)
}
