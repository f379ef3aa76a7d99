package faults

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Rates draws faults at random. Each rate is a probability from 0 to 1. The
// zero Rates injects no faults. Pass its method Plan to [New].
//
// Faults are reproducible: they depend only on the seed and on the Session, Op,
// Queue, Nth, Stage and Cause of the [Request], not on other goroutines.
type Rates struct {
	Seed uint64

	FailConnects float64 // Connects that fail
	LoseRequests float64 // requests lost on the way, except Connects
	LoseReplies  float64 // replies lost on the way, except to Connects
	Repeat       float64 // repeatable requests that are sent twice: see Fault.Repeat
	DropAhead    float64 // Creates without the nodes ahead (Joined.Known is false)
	DropWatch    float64 // Creates that leave out the watch
	EndWatches   float64 // watches that end within MaxDelay of being armed
	LoseReleased float64 // watches that end instead of sending Released
	// EndSessions does not apply to Connect and Close.
	EndSessions float64 // requests and replies that end the session

	// Delay is the share of requests, replies and watch events to delay,
	// each by a random time up to MaxDelay.
	Delay float64
	// MaxDelay bounds the delays. Zero means 100 ms.
	MaxDelay time.Duration
}

// Plan implements [Plan]. It does not block.
func (x Rates) Plan(_ context.Context, r Request) (f Fault) {
	rnd := x.numbers(r)
	hit := func(rate float64) bool { return rnd.Float64() < rate }
	limit := x.MaxDelay
	if limit <= 0 {
		limit = 100 * time.Millisecond
	}
	span := func() time.Duration { return 1 + time.Duration(rnd.Int64N(int64(limit))) }
	if hit(x.Delay) {
		f.Delay = span()
	}
	switch {
	case r.Stage == StageNews:
		f.Lose = r.Cause == driver.Released && hit(x.LoseReleased)
	case r.Op == OpConnect:
		f.Lose = r.Stage == StageRequest && hit(x.FailConnects)
	case r.Op == OpClose:
	case r.Stage == StageRequest:
		f.Lose = hit(x.LoseRequests)
		f.EndSession = hit(x.EndSessions)
		f.Repeat = r.repeatable() && hit(x.Repeat)
		if r.arms() && hit(x.EndWatches) {
			f.EndWatchAfter = span()
		}
	default:
		f.Lose = hit(x.LoseReplies)
		f.EndSession = hit(x.EndSessions)
		f.DropAhead = r.Op == OpCreate && hit(x.DropAhead)
		f.DropWatch = r.Op == OpCreate && hit(x.DropWatch)
	}
	return f
}

func (x Rates) numbers(r Request) *rand.Rand {
	h := fnv.New64a()
	for _, n := range []int{int(r.Op), int(r.Stage), int(r.Cause), r.Session, r.Nth} {
		_ = binary.Write(h, binary.LittleEndian, int64(n))
	}
	_, _ = io.WriteString(h, r.Queue)
	return rand.New(rand.NewPCG(x.Seed, h.Sum64()))
}
