package history

import (
	"errors"
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

// expect saves a hand-made history for the judge, which must accept the history
// if allowed is true and refuse it otherwise.
func expect(t *testing.T, rec *recorder, allowed bool) {
	t.Helper()
	record := rec.record(strings.ReplaceAll(t.Name(), "/", " "), "made by hand", nil)
	if !allowed {
		record.Broken = 1
	}
	_, unexplained := rec.history()
	record.Wrong = unexplained
	record.save(t)
}

// The tests below check that a lock may be lost only if a cause was recorded,
// such as the removal of its node by an operator.

func held(slot, id int, granted span) *contender {
	c := &contender{id: id, client: &client{slot: slot}, queue: "q", node: "n", mode: w, token: int64(id), granted: granted}
	c.handles = []*handle{{contender: c, mode: w, entered: granted}}
	return c
}

func after(c cause, call, ret int64) cause {
	c.span = span{call, ret}
	return c
}

func TestAnAnswerAfterASilentCauseProvesNothing(t *testing.T) {
	removed := cause{slot: -1, queue: "q", node: "n"}
	silenced := cause{slot: 1, told: true}
	for name, c := range map[string]struct {
		cause cause
		ok    bool
	}{
		"removed by an operator":         {after(removed, 3, 4), true},
		"removed too late to explain it": {after(removed, 9, 9), false},
		"another node":                   {after(cause{slot: -1, queue: "q", node: "m"}, 3, 4), false},
		"another queue":                  {after(cause{slot: -1, queue: "p"}, 3, 4), false},
		"the session must have known":    {after(silenced, 3, 4), false},
	} {
		t.Run(name, func(t *testing.T) {
			first, second := held(1, 1, span{1, 2}), held(2, 2, span{5, 6})
			second.node = "other"
			first.handles[0].answers = []seen{{span{7, 8}, 1, w}}
			first.learned = 10
			rec := &recorder{clock: 10, contenders: []*contender{first, second}, causes: []cause{c.cause}}
			expect(t, rec, c.ok)
		})
	}
}

func TestALossWithoutACauseIsReported(t *testing.T) {
	h := held(1, 1, span{1, 2})
	h.handles[0].given = &ending{span: span{5, 6}, err: errors.Join(dlock.ErrLost)}
	h.learned = 6
	rec := &recorder{clock: 6, contenders: []*contender{h}}
	require.NotEmpty(t, rec.record("", "", nil).Wrong)
	rec.causes = []cause{after(cause{slot: 1, told: true}, 3, 4)}
	expect(t, rec, true)
}

func TestACloseIsTheEndOfAllLocksOfTheClient(t *testing.T) {
	for name, c := range map[string]struct {
		answer span
		ok     bool
	}{
		"held before":              {span{3, 4}, true},
		"held while it is closed":  {span{6, 7}, true},
		"held after another grant": {span{9, 10}, false},
		"held after the close":     {span{12, 13}, false},
	} {
		t.Run(name, func(t *testing.T) {
			first, second := held(1, 1, span{1, 2}), held(2, 2, span{5, 8})
			first.client.closed = &ending{span: span{5, 11}}
			first.handles[0].answers = []seen{{c.answer, 1, w}}
			second.handles[0].answers = []seen{{span{9, 9}, 2, w}}
			rec := &recorder{clock: 20, contenders: []*contender{first, second}}
			expect(t, rec, c.ok)
		})
	}
}

// If an Unlock fails because the client is being closed, it may have reached
// the store before, and then another client may be granted the lock.
func TestAnUnlockThatMeetsACloseIsARelease(t *testing.T) {
	unlocked := fmt.Errorf("%w: %w", dlock.ErrUnlock, dlock.ErrClosed)
	for name, c := range map[string]struct {
		err error
		won span // the Lock call by which another client is granted the lock
		ok  bool
	}{
		"granted before the close":          {unlocked, span{4, 6}, true},
		"granted before the Unlock":         {unlocked, span{4, 4}, false},
		"lost, granted before the close":    {dlock.ErrLost, span{4, 6}, false},
		"lost, granted while it was closed": {dlock.ErrLost, span{4, 8}, true},
	} {
		t.Run(name, func(t *testing.T) {
			first, second := held(1, 1, span{1, 2}), held(2, 2, c.won)
			first.client.closed = &ending{span: span{7, 9}}
			first.handles[0].given = &ending{span: span{5, 10}, err: c.err}
			rec := &recorder{clock: 20, contenders: []*contender{first, second}}
			expect(t, rec, c.ok)
		})
	}
}

// An Unlock that reports a loss may have removed the node before the cause of the
// loss, if the store's answer did not arrive.
func TestAnUnlockThatMeetsALossMayBeARelease(t *testing.T) {
	for name, c := range map[string]struct {
		won span
		ok  bool
	}{
		"granted before the loss":   {span{4, 6}, true},
		"granted before the Unlock": {span{4, 4}, false},
	} {
		t.Run(name, func(t *testing.T) {
			first, second := held(1, 1, span{1, 2}), held(2, 2, c.won)
			first.handles[0].given = &ending{span: span{5, 10}, err: dlock.ErrLost}
			first.learned = 10
			rec := &recorder{clock: 20, contenders: []*contender{first, second}, causes: []cause{after(cause{slot: 1, told: true}, 7, 8)}}
			expect(t, rec, c.ok)
		})
	}
}
