package dlocktest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/memdriver"
)

func TestRatesPlayTheSameAgain(t *testing.T) {
	x := Rates{
		Seed: 11, LoseRequests: 0.1, LoseReplies: 0.1, Repeat: 0.3, CloseWatches: 0.3, EndSessions: 0.02,
		FailConnects: 0.3, Delay: 0.5,
	}
	first, second := ratesJournal(t, x), ratesJournal(t, x)
	assert.Equal(t, first, second)
	x.Seed++
	assert.NotEqual(t, first, ratesJournal(t, x))
}

// ratesJournal is what each session of a client meets that locks and unlocks thirty times. Which of two sessions is
// first, the one that closes or the one that connects in its place, is for the scheduler to say.
func ratesJournal(t *testing.T, x Rates) (journal map[int][]string) {
	journal = make(map[int][]string)
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		f := NewFaults(memdriver.New(), func(ctx context.Context, r Request) Fault {
			fault := x.Decide(ctx, r)
			mu.Lock()
			defer mu.Unlock()
			journal[r.Session] = append(journal[r.Session], fmt.Sprint(r, fault))
			return fault
		})
		client := dlock.OpenConnector(f, dlock.WithBackOff(func() dlock.BackOff { return steady{} }))
		for range 30 {
			l, err := client.RWMutex("q").Lock(t.Context())
			require.NoError(t, err)
			_ = l.Unlock() // it may be lost, or in doubt
			time.Sleep(time.Second)
		}
		require.NoError(t, client.Close())
		stats := f.Stats()
		assert.NotZero(t, stats.RequestsLost)
		assert.NotZero(t, stats.RepliesLost)
		assert.NotZero(t, stats.Delayed)
		assert.NotZero(t, stats.SessionsEnded)
	})
	return journal
}

type steady struct{}

func (steady) NextBackOff() time.Duration { return 50 * time.Millisecond }
func (steady) Reset()                     {}

func TestRatesAreRates(t *testing.T) {
	const n = 20_000
	x := Rates{Seed: 3, LoseRequests: 0.1, LoseReplies: 0.2, Repeat: 0.3, EndSessions: 0.05, Delay: 0.4, MaxDelay: time.Second}
	var requests, replies, repeats, ends, delays int
	count := func(n *int, yes bool) {
		if yes {
			*n++
		}
	}
	for i := range n {
		r := Request{Method: MethodDelete, Session: 1 + i%7, Nth: i, Queue: "q"}
		f := x.Decide(t.Context(), r)
		count(&requests, f.Lose)
		count(&repeats, f.Repeat)
		count(&ends, f.End)
		count(&delays, f.Delay > 0)
		assert.LessOrEqual(t, f.Delay, time.Second)
		r.Stage = StageReply
		count(&replies, x.Decide(t.Context(), r).Lose)
	}
	for name, c := range map[string]struct {
		got  int
		want float64
	}{
		"requests": {requests, 0.1}, "replies": {replies, 0.2}, "repeats": {repeats, 0.3}, "ends": {ends, 0.05}, "delays": {delays, 0.4},
	} {
		assert.InDelta(t, c.want, float64(c.got)/n, 0.01, name)
	}
}

func TestRatesPlayNothingThatDoesNotCount(t *testing.T) {
	all := Rates{LoseRequests: 1, LoseReplies: 1, Repeat: 1, CloseWatches: 1, EndSessions: 1, FailConnects: 1}
	for _, c := range []struct {
		r    Request
		want Fault
	}{
		{Request{Method: MethodClose}, Fault{}},
		{Request{Method: MethodWatch, Stage: StageWatch}, Fault{}},
		{Request{Method: MethodConnect}, Fault{Lose: true}},
		{Request{Method: MethodConnect, Stage: StageReply}, Fault{}},
		{Request{Method: MethodCreate}, Fault{Lose: true, End: true}},
		{Request{Method: MethodDelete}, Fault{Lose: true, End: true, Repeat: true}},
	} {
		assert.Equal(t, c.want, all.Decide(t.Context(), c.r), "%v", c.r)
	}
	assert.Zero(t, Rates{}.Decide(t.Context(), Request{Method: MethodDelete}))
}
