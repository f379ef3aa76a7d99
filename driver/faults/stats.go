package faults

import (
	"sync/atomic"

	"github.com/dlock-go/dlock/driver"
)

// Stats counts the faults that a [Connector] has injected. Tests should check
// that the counts are not zero, because a test without faults proves nothing.
type Stats struct {
	Requests       int // requests sent, including Connects
	Delayed        int // requests, replies and watch events that were delayed
	RequestsLost   int
	RepliesLost    int
	Repeated       int
	AheadsDropped  int // Creates that left out the nodes ahead
	WatchesDropped int // Creates that left out the watch
	WatchesEnded   int // watches that a fault has ended early
	ReleasesLost   int
	SessionsEnded  int
}

// Stats returns the counts so far.
func (c *Connector) Stats() Stats {
	t := &c.tally
	return Stats{
		Requests:       int(t.requests.Load()),
		Delayed:        int(t.delayed.Load()),
		RequestsLost:   int(t.requestsLost.Load()),
		RepliesLost:    int(t.repliesLost.Load()),
		Repeated:       int(t.repeated.Load()),
		AheadsDropped:  int(t.aheadsDropped.Load()),
		WatchesDropped: int(t.watchesDropped.Load()),
		WatchesEnded:   int(t.watchesEnded.Load()),
		ReleasesLost:   int(t.releasesLost.Load()),
		SessionsEnded:  int(t.sessionsEnded.Load()),
	}
}

type counters struct {
	requests, delayed, requestsLost, repliesLost, repeated atomic.Int64
	aheadsDropped, watchesDropped                          atomic.Int64
	watchesEnded, releasesLost, sessionsEnded              atomic.Int64
}

func count(n *atomic.Int64, yes bool) {
	if yes {
		n.Add(1)
	}
}

// add counts a request and its faults, but leaves DropAhead and DropWatch to
// withoutDropped.
func (t *counters) add(r Request, f Fault) {
	count(&t.requests, r.Stage == StageRequest)
	count(&t.delayed, f.Delay > 0)
	if r.Op == OpClose {
		return
	}
	switch r.Stage {
	case StageRequest:
		count(&t.requestsLost, f.Lose)
		count(&t.repeated, f.Repeat && r.repeatable())
		count(&t.watchesEnded, f.EndWatchAfter > 0 && r.arms())
		count(&t.sessionsEnded, f.EndSession)
	case StageReply:
		count(&t.repliesLost, f.Lose)
		count(&t.sessionsEnded, f.EndSession)
	case StageNews:
		count(&t.releasesLost, f.Lose && r.Cause == driver.Released)
	}
}
