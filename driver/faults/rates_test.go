package faults_test

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
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
)

func TestRatesWithOneSeedPlayTheSameFaults(t *testing.T) {
	x := faults.Rates{
		Seed: 11, LoseRequests: 0.1, LoseReplies: 0.1, Repeat: 0.3, EndWatches: 0.3, EndSessions: 0.02,
		FailConnects: 0.3, Delay: 0.5,
	}
	first, second := ratesJournal(t, x), ratesJournal(t, x)
	assert.Equal(t, first, second)
	x.Seed++
	assert.NotEqual(t, first, ratesJournal(t, x))
}

// ratesJournal keeps a list per session, because sessions race with each other.
func ratesJournal(t *testing.T, x faults.Rates) (journal map[int][]string) {
	journal = make(map[int][]string)
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		f := faults.New(memdriver.New(), func(ctx context.Context, r faults.Request) faults.Fault {
			fault := x.Plan(ctx, r)
			mu.Lock()
			defer mu.Unlock()
			journal[r.Session] = append(journal[r.Session], fmt.Sprint(r, fault))
			return fault
		})
		client := dlock.NewClient(f, dlock.WithBackOff(func() dlock.BackOff { return steady{} }))
		for range 30 {
			l, err := client.RWMutex("q").Lock(t.Context())
			require.NoError(t, err)
			// Unlock fails if a fault ended the session or lost the reply.
			_ = l.Unlock()
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

func TestRatesAreProbabilities(t *testing.T) {
	const n = 20_000
	x := faults.Rates{
		Seed: 3, LoseRequests: 0.1, LoseReplies: 0.2, Repeat: 0.3, EndSessions: 0.05, EndWatches: 0.15,
		DropAhead: 0.25, DropWatch: 0.35, LoseReleased: 0.45, Delay: 0.4, MaxDelay: time.Second,
	}
	var requests, replies, repeats, ends, delays, early, aheads, watches, releases int
	count := func(n *int, yes bool) {
		if yes {
			*n++
		}
	}
	for i := range n {
		r := faults.Request{Op: faults.OpDelete, Session: 1 + i%7, Nth: i, Queue: "q"}
		f := x.Plan(t.Context(), r)
		count(&requests, f.Lose)
		count(&repeats, f.Repeat)
		count(&ends, f.EndSession)
		count(&delays, f.Delay > 0)
		assert.LessOrEqual(t, f.Delay, time.Second)
		r.Stage = faults.StageReply
		count(&replies, x.Plan(t.Context(), r).Lose)

		r = faults.Request{Op: faults.OpCreate, Session: 1 + i%7, Nth: i, Queue: "q"}
		count(&early, x.Plan(t.Context(), r).EndWatchAfter > 0)
		r.Stage = faults.StageReply
		f = x.Plan(t.Context(), r)
		count(&aheads, f.DropAhead)
		count(&watches, f.DropWatch)
		r.Stage, r.Cause = faults.StageNews, driver.Released
		count(&releases, x.Plan(t.Context(), r).Lose)
	}
	for name, c := range map[string]struct {
		got  int
		want float64
	}{
		"requests": {requests, 0.1}, "replies": {replies, 0.2}, "repeats": {repeats, 0.3}, "ends": {ends, 0.05},
		"delays": {delays, 0.4}, "early": {early, 0.15}, "aheads": {aheads, 0.25}, "watches": {watches, 0.35},
		"releases": {releases, 0.45},
	} {
		assert.InDelta(t, c.want, float64(c.got)/n, 0.01, name)
	}
}

func TestRatesPlayOnlyWhatApplies(t *testing.T) {
	all := faults.Rates{
		FailConnects: 1, LoseRequests: 1, LoseReplies: 1, Repeat: 1, DropAhead: 1, DropWatch: 1, EndWatches: 1,
		LoseReleased: 1, EndSessions: 1, MaxDelay: 1,
	}
	const request, reply, news = faults.StageRequest, faults.StageReply, faults.StageNews
	lost := faults.Fault{Lose: true, EndSession: true}
	for _, c := range []struct {
		r    faults.Request
		want faults.Fault
	}{
		{faults.Request{Op: faults.OpClose}, faults.Fault{}},
		{faults.Request{Op: faults.OpConnect}, faults.Fault{Lose: true}},
		{faults.Request{Op: faults.OpConnect, Stage: reply}, faults.Fault{}},
		{faults.Request{Op: faults.OpCreate}, faults.Fault{Lose: true, EndSession: true, EndWatchAfter: 1}},
		{
			faults.Request{Op: faults.OpCreate, Stage: reply},
			faults.Fault{Lose: true, EndSession: true, DropAhead: true, DropWatch: true},
		},
		{faults.Request{Op: faults.OpCreate, Stage: news}, faults.Fault{}},
		{faults.Request{Op: faults.OpWatch}, faults.Fault{Lose: true, EndSession: true, EndWatchAfter: 1}},
		{faults.Request{Op: faults.OpWatch, Stage: reply}, lost},
		{faults.Request{Op: faults.OpWatch, Stage: news}, faults.Fault{}},
		{faults.Request{Op: faults.OpWatch, Stage: news, Cause: driver.Released}, faults.Fault{Lose: true}},
		{faults.Request{Op: faults.OpDelete}, faults.Fault{Lose: true, EndSession: true, Repeat: true}},
		{faults.Request{Op: faults.OpDelete, Stage: request, Cause: driver.Released}, faults.Fault{Lose: true, EndSession: true, Repeat: true}},
		{faults.Request{Op: faults.OpList}, lost},
	} {
		assert.Equal(t, c.want, all.Plan(t.Context(), c.r), "%v", c.r)
	}
	assert.Zero(t, faults.Rates{}.Plan(t.Context(), faults.Request{Op: faults.OpDelete}))
}
