package history

import (
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

func (r *run) pass(p *message) {
	f := r.drawFault(p)
	if f.Delay > 0 {
		p.after = time.Now().Add(f.Delay)
		p.client.disturb(p.after)
		r.note("%v takes %v", p, f.Delay)
		r.count("delayed")
		return
	}
	r.gate.remove(p)
	r.passing = p
	if p.request.Stage == faults.StageReply && arms(p.request.Op) {
		r.armed[p.watch()] = r.gate.step
	}
	r.noteFate(p, f)
	if f.Lose && p.request.Stage != faults.StageNews {
		p.client.loses()
		r.mu.Lock()
		r.doubts[p.request.Place.Token] = true
		r.mu.Unlock()
	}
	p.verdict <- f
}

func (r *run) drawFault(p *message) (f faults.Fault) {
	n := r.rand.IntN(1000)
	q := p.request
	switch {
	case q.Op == faults.OpClose:
	case q.Stage == faults.StageNews:
		f.Lose = n < 100 && q.Cause == driver.Released
	case n < 30:
		f.Lose = true
	case n < 35 && q.Op != faults.OpConnect:
		f.EndSession = true
		p.client.disturb(time.Now())
	case q.Stage == faults.StageRequest && n < 100 && repeatable(q.Op):
		f.Repeat = true
	case q.Stage == faults.StageRequest && n < 150 && arms(q.Op):
		f.EndWatchAfter = r.span(2 * time.Second)
	case q.Stage == faults.StageReply && q.Op == faults.OpCreate:
		f.DropAhead = n < 300
		f.DropWatch = 200 <= n && n < 450
	}
	if n >= 985 && p.after.IsZero() {
		return faults.Fault{Delay: r.span(8 * time.Second)}
	}
	return f
}

// repeatable reports whether the simulated network may duplicate a request.
func repeatable(op faults.Op) bool {
	return op == faults.OpDelete || op == faults.OpReplace || op == faults.OpCleanUp
}

// arms reports whether a request for op may set a watch in the store.
func arms(op faults.Op) bool {
	return op == faults.OpCreate || op == faults.OpWatch || op == faults.OpWatchQueue
}

// span returns a random duration, at whose end no other timer of the run fires.
func (r *run) span(limit time.Duration) time.Duration {
	return time.Duration(r.rand.Int64N(int64(limit/time.Microsecond)))*time.Microsecond + 300*time.Nanosecond
}

// doubtful reports whether a Delete or rename of the node may have succeeded
// without reply.
func (r *run) doubtful(token int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.doubts[token]
}

func (r *run) noteFate(p *message, f faults.Fault) {
	stage := p.request.Stage
	for _, fate := range []struct {
		is            bool
		what, becomes string
	}{
		{f.Lose && stage == faults.StageRequest, "request lost", "is lost"},
		{f.Lose && stage == faults.StageReply, "reply lost", "is lost"},
		{f.Lose, "release lost", "is lost"},
		{f.EndSession, "session ended", "ends the session"},
		{f.Repeat, "request repeated", "is sent twice"},
		{f.EndWatchAfter > 0, "watch closed early", fmt.Sprint("ends its watch after ", f.EndWatchAfter)},
		{f.DropAhead && f.DropWatch, "create without list and watch", "brings no list and no watch"},
		{f.DropAhead, "create without list", "brings no list"},
		{f.DropWatch, "create without watch", "brings no watch"},
	} {
		if fate.is {
			r.note("%v %s", p, fate.becomes)
			r.count(fate.what)
			return
		}
	}
	r.note("%v", p)
}
