package dlocktest

import (
	"context"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"
)

// Rates draws faults by chance. Each rate is the share, from 0 to 1, of what it counts for that
// meets the fault; the zero Rates plays nothing. Use its method Decide with [NewFaults].
//
// What becomes of a request depends on the seed and on the numbers of the request alone (see
// [Request]), and not on what others do meanwhile. So a program that does the same in each of its
// sessions meets the same faults again.
type Rates struct {
	Seed uint64

	LoseRequests float64 // of all requests: the store never sees it
	LoseReplies  float64 // of all replies: the store has carried it out
	Repeat       float64 // of Delete, Release and Replace
	CloseWatches float64 // of watches: closed within MaxDelay after they were armed
	EndSessions  float64 // of all requests and replies, but for a Connect
	FailConnects float64 // of Connects; LoseRequests and LoseReplies do not count for them

	// Delay is the share of all requests, replies and ends of watches that take up to MaxDelay.
	Delay float64
	// MaxDelay is 100 ms where it is zero.
	MaxDelay time.Duration
}

// Decide is a [Decide]. It returns at once.
func (x Rates) Decide(_ context.Context, r Request) (f Fault) {
	rnd := x.numbers(r)
	hit := func(rate float64) bool { return rnd.Float64() < rate }
	limit := x.MaxDelay
	if limit <= 0 {
		limit = 100 * time.Millisecond
	}
	if hit(x.Delay) {
		f.Delay = 1 + time.Duration(rnd.Int64N(int64(limit)))
	}
	switch {
	case r.Stage == StageWatch:
	case r.Method == MethodConnect:
		f.Lose = r.Stage == StageRequest && hit(x.FailConnects)
	case r.Method == MethodClose:
	case r.Stage == StageRequest:
		f.Lose = hit(x.LoseRequests)
		f.End = hit(x.EndSessions)
		f.Repeat = r.repeatable() && hit(x.Repeat)
		if r.Method == MethodWatch && hit(x.CloseWatches) {
			f.CloseAfter = 1 + time.Duration(rnd.Int64N(int64(limit)))
		}
	default:
		f.Lose = hit(x.LoseReplies)
		f.End = hit(x.EndSessions)
	}
	return f
}

// numbers returns the random numbers of one request.
func (x Rates) numbers(r Request) *rand.Rand {
	h := fnv.New64a()
	for _, part := range []string{strconv.Itoa(r.Session), r.Method, r.Stage.String(), r.Queue, strconv.Itoa(r.Nth)} {
		_, _ = io.WriteString(h, part+"\x00")
	}
	return rand.New(rand.NewPCG(x.Seed, h.Sum64()))
}

// FaultStats counts what [Faults] has met and played, so that a test can tell whether it has
// proved anything.
type FaultStats struct {
	Requests      int // that sessions have sent, also Connects
	Delayed       int // requests, replies and ends of watches
	RequestsLost  int
	RepliesLost   int
	Repeated      int
	ClosedEarly   int // watches that were to be closed early
	SessionsEnded int
}

// Stats returns what has been played so far.
func (f *Faults) Stats() FaultStats {
	t := &f.tally
	return FaultStats{
		Requests:      int(t.requests.Load()),
		Delayed:       int(t.delayed.Load()),
		RequestsLost:  int(t.requestsLost.Load()),
		RepliesLost:   int(t.repliesLost.Load()),
		Repeated:      int(t.repeated.Load()),
		ClosedEarly:   int(t.closedEarly.Load()),
		SessionsEnded: int(t.ended.Load()),
	}
}

type tally struct {
	requests, delayed, requestsLost, repliesLost, repeated, closedEarly, ended atomic.Int64
}

func (t *tally) add(r Request, f Fault) {
	count := func(n *atomic.Int64, yes bool) {
		if yes {
			n.Add(1)
		}
	}
	count(&t.requests, r.Stage == StageRequest)
	count(&t.delayed, f.Delay > 0)
	if r.Stage == StageWatch || r.Method == MethodClose {
		return
	}
	count(&t.requestsLost, f.Lose && r.Stage == StageRequest)
	count(&t.repliesLost, f.Lose && r.Stage == StageReply)
	count(&t.repeated, f.Repeat && r.Stage == StageRequest && r.repeatable())
	count(&t.closedEarly, f.CloseAfter > 0 && r.Stage == StageRequest && r.Method == MethodWatch)
	count(&t.ended, f.End)
}
