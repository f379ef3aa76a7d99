package history

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver/faults"
)

// gate holds back each request, reply and watch event until the run delivers
// it.
type gate struct {
	mu      sync.Mutex
	step    int // number of the current step of the run
	open    bool
	came    int // number of messages that have arrived so far
	waiting []*message
}

type message struct {
	client  *process
	request faults.Request
	born    int // step in which it reached the gate
	after   time.Time
	verdict chan faults.Fault
}

// plan's callback blocks until the run delivers the message, and returns the
// drawn fault.
func (g *gate) plan(c *process) faults.Plan {
	return func(ctx context.Context, r faults.Request) faults.Fault {
		if r.Op == faults.OpConnect && r.Stage == faults.StageReply && r.Err == nil {
			c.connected(r.Session)
		}
		if r.Op == faults.OpCreate && r.Err != nil {
			c.disturb(time.Now()) // used-up sequences count as a fault
		}
		p := g.arrive(c, r)
		select {
		case f := <-p.verdict:
			return f
		case <-ctx.Done():
			g.remove(p)
			return faults.Fault{}
		}
	}
}

func (g *gate) arrive(c *process, r faults.Request) *message {
	p := &message{client: c, request: r, verdict: make(chan faults.Fault, 1)}
	g.mu.Lock()
	defer g.mu.Unlock()
	p.born = g.step
	g.came++
	if g.open {
		p.verdict <- faults.Fault{}
		return p
	}
	g.waiting = append(g.waiting, p)
	return p
}

func (g *gate) remove(p *message) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if i := slices.Index(g.waiting, p); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
}

// openForGood delivers all messages immediately, including those that arrive
// later.
func (g *gate) openForGood() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = true
	for _, p := range g.waiting {
		p.verdict <- faults.Fault{}
	}
	g.waiting = nil
}

func (g *gate) arrived() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.came
}

func (g *gate) next() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.step++
}

// ready returns the deliverable messages, in an order independent of the
// goroutine scheduler.
func (g *gate) ready() []*message {
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	ready := make([]*message, 0, len(g.waiting))
	for _, p := range g.waiting {
		if !p.client.holdsBack(p.request) && !now.Before(p.after) {
			ready = append(ready, p)
		}
	}
	slices.SortFunc(ready, (*message).compare)
	return ready
}

func (g *gate) has(c *process) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(g.waiting, func(p *message) bool { return p.client == c })
}

func (p *message) compare(q *message) int {
	a, b := &p.request, &q.request
	return cmp.Or(
		p.client.number-q.client.number,
		a.Session-b.Session,
		int(a.Op-b.Op),
		int(a.Stage-b.Stage),
		strings.Compare(a.Queue, b.Queue),
		strings.Compare(a.Place.Name, b.Place.Name),
		strings.Compare(a.Prefix, b.Prefix),
		a.Nth-b.Nth)
}

type watchKey struct {
	client, session, nth int
	op                   faults.Op
	queue                string
}

func (p *message) watch() watchKey {
	q := &p.request
	return watchKey{p.client.number, q.Session, q.Nth, q.Op, q.Queue}
}

func (p *message) String() string {
	return fmt.Sprintf("c%d.%d %v", p.client.number, p.request.Session, p.request)
}
