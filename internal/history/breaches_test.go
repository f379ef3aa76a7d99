package history

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
)

func called(call, ret int64, mode dlock.Mode, err error) *attempt {
	return &attempt{span: span{call, ret}, client: &client{}, queue: "q", mode: mode, err: err}
}

func ofUnits(units int, a *attempt) *attempt {
	a.units = units
	return a
}

func unanswered(a *attempt) *attempt {
	a.err = dlock.ErrUnavailable
	return a
}

func tried(call, ret int64, mode dlock.Mode) *attempt {
	a := called(call, ret, mode, dlock.ErrLocked)
	a.try = true
	return a
}

func holding(call, ret int64, mode dlock.Mode, left int64, err error) *attempt {
	a := called(call, ret, mode, nil)
	h := held(0, 1, a.span).handles[0]
	h.given = &ending{span: span{left - 1, left}, err: err, at: time.Unix(left, 0)}
	a.got = h
	return a
}

func queued(a *attempt, at, token int64) *attempt {
	a.queued = append(a.queued, placed{span{a.call, at}, token})
	return a
}

var errDoubt = errors.New("the outcome is unknown")

func TestATryIsRefusedOnlyForAReason(t *testing.T) {
	grace := func(r *recorder) { r.grace = time.Second; r.attempts[0].began = time.Unix(100, 0) }
	for name, c := range map[string]struct {
		more  []*attempt
		with  func(*recorder)
		wrong bool
	}{
		"the queue was empty":                              {nil, nil, true},
		"another contender holds it":                       {[]*attempt{holding(1, 2, w, 30, nil)}, nil, false},
		"another call begins meanwhile":                    {[]*attempt{called(11, 15, w, context.Canceled)}, nil, false},
		"another call begins later":                        {[]*attempt{called(13, 15, w, context.Canceled)}, nil, true},
		"the holder has left":                              {[]*attempt{holding(1, 2, w, 5, nil)}, nil, true},
		"the holder's node may be there still":             {[]*attempt{holding(1, 2, w, 5, errDoubt)}, nil, false},
		"the queue was seen empty since":                   {[]*attempt{holding(1, 2, w, 5, errDoubt)}, func(r *recorder) { r.clock = 5; r.settled("q") }, true},
		"the queue was seen empty before":                  {[]*attempt{holding(1, 2, w, 5, errDoubt)}, func(r *recorder) { r.clock = 3; r.settled("q") }, false},
		"the time for its node to go has passed":           {[]*attempt{holding(1, 2, w, 5, errDoubt)}, grace, true},
		"a waiter gave up, long ago":                       {[]*attempt{called(1, 5, w, context.Canceled)}, nil, false},
		"a waiter gave up":                                 {[]*attempt{called(9, 11, w, context.Canceled)}, nil, false},
		"a try was refused without a node":                 {[]*attempt{tried(1, 5, w)}, nil, true},
		"two of them meet":                                 {[]*attempt{tried(9, 11, w)}, nil, false},
		"another queue":                                    {[]*attempt{func() *attempt { a := holding(1, 2, w, 30, nil); a.queue = "p"; return a }()}, nil, true},
		"its own request was lost":                         {nil, func(r *recorder) { r.attempts[0].retried = true }, false},
		"the server may be behind":                         {[]*attempt{holding(1, 2, w, 5, nil)}, func(r *recorder) { r.lagging = true }, false},
		"the server cannot be so far behind":               {[]*attempt{holding(1, 2, w, 5, nil)}, func(r *recorder) { r.lagging = true; r.attempts[0].synced = 6 }, true},
		"the client had seen less, before the holder left": {[]*attempt{holding(1, 2, w, 5, nil)}, func(r *recorder) { r.lagging = true; r.attempts[0].synced = 4 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := tried(10, 12, w)
			rec := &recorder{attempts: append([]*attempt{a}, c.more...)}
			if c.with != nil {
				c.with(rec)
			}
			require.Equal(t, c.wrong, rec.idle(a))
		})
	}
	reader := &recorder{attempts: []*attempt{tried(10, 12, r), holding(1, 2, r, 30, nil)}}
	require.True(t, reader.idle(reader.attempts[0]), "a reader does not block a reader")
	for units, wrong := range map[int]bool{1: true, 2: true, 3: false} {
		holders := []*attempt{ofUnits(1, holding(1, 2, r, 30, nil)), ofUnits(1, holding(3, 4, r, 30, nil))}
		rec := &recorder{attempts: append(holders, ofUnits(units, tried(10, 12, r)))}
		require.Equal(t, wrong, rec.idle(rec.attempts[2]), "%d units beside two", units)
	}
	for name, other := range map[string]*attempt{"a reader": holding(1, 2, r, 30, nil), "a writer": holding(1, 2, w, 30, nil)} {
		rec := &recorder{attempts: []*attempt{other, ofUnits(1, tried(10, 12, r))}}
		require.False(t, rec.idle(rec.attempts[1]), "%s blocks units", name)
	}
}

func TestTokensFollowTheClock(t *testing.T) {
	first, second := called(1, 9, w, nil), called(5, 9, w, nil)
	require.Empty(t, (&recorder{attempts: []*attempt{queued(first, 3, 1), queued(second, 7, 2)}}).outOfOrder())
	together := &recorder{attempts: []*attempt{queued(called(1, 9, w, nil), 6, 2), queued(called(5, 9, w, nil), 7, 1)}}
	require.Empty(t, together.outOfOrder(), "both calls were in flight at the same time")
	falling := &recorder{attempts: []*attempt{queued(called(1, 9, w, nil), 3, 2), queued(called(5, 9, w, nil), 7, 1)}}
	require.Len(t, falling.outOfOrder(), 1)
	again := &recorder{attempts: []*attempt{queued(queued(called(1, 9, w, nil), 3, 2), 4, 2)}}
	again.attempts[0].queued[1].call = 4
	require.Len(t, again.outOfOrder(), 1, "one token for two nodes")
}

func TestNoContenderIsOvertaken(t *testing.T) {
	for name, c := range map[string]struct {
		mode  dlock.Mode // requested by the waiter
		by    dlock.Mode
		token int64
		at    int64
		cause *cause
		wrong bool
	}{
		"a writer by a writer":        {w, w, 2, 8, nil, true},
		"a writer by a reader":        {w, r, 2, 8, nil, true},
		"a reader by a writer":        {r, w, 2, 8, nil, true},
		"a reader by a reader":        {r, r, 2, 8, nil, false},
		"by one who came first":       {w, w, 0, 8, nil, false},
		"after giving up":             {w, w, 2, 11, nil, false},
		"its session may have ended":  {w, w, 2, 8, &cause{span: span{4, 5}, told: true}, false},
		"its node may be gone":        {w, w, 2, 8, &cause{span: span{4, 5}, slot: -1, node: "n"}, false},
		"its session ended later":     {w, w, 2, 8, &cause{span: span{9, 10}, told: true}, true},
		"another client's session":    {w, w, 2, 8, &cause{span: span{4, 5}, slot: 7, told: true}, true},
		"another queue was removed":   {w, w, 2, 8, &cause{span: span{4, 5}, slot: -1, queue: "p"}, true},
		"the queue was removed since": {w, w, 2, 8, &cause{span: span{9, 10}, slot: -1, queue: "q"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			waits := queued(called(1, 12, c.mode, context.Canceled), 3, 1)
			waits.gaveUp = 10
			by := held(1, 2, span{4, c.at})
			by.mode, by.token = c.by, c.token
			rec := &recorder{attempts: []*attempt{waits}, contenders: []*contender{by}}
			if c.cause != nil {
				rec.causes = []cause{*c.cause}
			}
			require.Equal(t, c.wrong, len(rec.overtaken()) > 0)
		})
	}
	for units, wrong := range map[int]bool{1: false, 2: true} {
		waits := ofUnits(3, queued(called(1, 12, r, context.Canceled), 3, 1))
		waits.gaveUp = 10
		by := held(1, 2, span{4, 8})
		by.mode, by.units = r, units
		rec := &recorder{attempts: []*attempt{waits}, contenders: []*contender{by}}
		require.Equal(t, wrong, len(rec.overtaken()) > 0, "%d units may be granted beside three", units)
	}
}

func TestEveryErrorHasItsReason(t *testing.T) {
	closed := func(a *attempt, at span) *attempt { a.client.closed = &ending{span: at}; return a }
	given := func(a *attempt) *attempt { a.gaveUp = 3; return a }
	limited := func(a *attempt) *attempt { a.limited = true; return a }
	within := func(a *attempt) *attempt { a.within = held(0, 1, span{1, 2}).handles[0]; return a }
	timeout := dlock.ErrTimeout
	for name, c := range map[string]struct {
		a     *attempt
		wrong bool
	}{
		"success":                    {called(1, 5, w, nil), false},
		"cancelled":                  {given(called(1, 5, w, context.Canceled)), false},
		"cancelled without a cancel": {called(1, 5, w, context.Canceled), true},
		"timed out":                  {limited(called(1, 5, w, timeout)), false},
		"timed out without a limit":  {called(1, 5, w, timeout), true},
		"refused":                    {tried(1, 5, w), false},
		"refused without a try":      {called(1, 5, w, dlock.ErrLocked), true},
		"closed meanwhile":           {closed(called(1, 5, w, dlock.ErrClosed), span{3, 7}), false},
		"not closed yet":             {closed(called(1, 5, w, dlock.ErrClosed), span{6, 7}), true},
		"won on a closed client":     {closed(called(3, 5, w, nil), span{1, 2}), true},
		"an upgrade":                 {within(called(1, 5, w, dlock.ErrUpgrade)), false},
		"an upgrade to shared":       {within(called(1, 5, r, dlock.ErrUpgrade)), true},
		"an upgrade of nothing":      {called(1, 5, w, dlock.ErrUpgrade), true},
		"lost":                       {within(called(1, 5, w, dlock.ErrLost)), false},
		"lost what was not held":     {called(1, 5, w, dlock.ErrLost), true},
		"an error of the store":      {called(1, 5, w, dlock.ErrUnavailable), true},
		"a try that met one":         {unanswered(tried(1, 5, w)), false},
		"its lock was not given yet": {within(called(1, 5, w, context.Canceled)), true},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.wrong, c.a.wrong() != "", c.a.wrong()) })
	}
}
