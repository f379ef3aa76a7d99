package simulation

import (
	"time"

	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/recipes"
)

// pass lets something pass the gate, or draws what else becomes of it.
func (r *run) pass(p *passage) {
	f := r.fate(p)
	if f.Delay > 0 {
		p.after = time.Now().Add(f.Delay)
		p.client.trouble(p.after)
		r.note("%v takes %v", p, f.Delay)
		r.count("delayed")
		return
	}
	r.gate.take(p)
	r.passing = p
	r.noteFate(p, f)
	if f.Lose {
		p.client.loses()
		r.mu.Lock()
		r.doubts[p.request.Place.Token] = true
		r.mu.Unlock()
	}
	p.verdict <- f
}

// fate draws what becomes of something. Its Delay is played at the gate.
func (r *run) fate(p *passage) (f dlocktest.Fault) {
	n := r.rand.IntN(1000)
	q := p.request
	switch {
	case q.Stage == dlocktest.StageWatch || q.Method == dlocktest.MethodClose:
	case n < 30:
		f.Lose = true
	case n < 35 && q.Method != dlocktest.MethodConnect:
		f.End = true
		p.client.trouble(time.Now())
	case n < 100 && repeatable(q):
		f.Repeat = true
	case n < 150 && q.Method == dlocktest.MethodWatch && q.Stage == dlocktest.StageRequest:
		f.CloseAfter = r.span(2 * time.Second)
	}
	if n >= 985 && p.after.IsZero() {
		return dlocktest.Fault{Delay: r.span(8 * time.Second)}
	}
	return f
}

func repeatable(r dlocktest.Request) bool {
	switch r.Method {
	case dlocktest.MethodDelete, dlocktest.MethodRelease, dlocktest.MethodReplace, dlocktest.MethodCleanUp:
		return r.Stage == dlocktest.StageRequest
	}
	return false
}

// span draws a duration that ends at no instant at which anything else does.
func (r *run) span(limit time.Duration) time.Duration {
	return time.Duration(r.rand.Int64N(int64(limit/time.Microsecond)))*time.Microsecond + 300*time.Nanosecond
}

// doubtful tells whether something that was to change the node of a lock was lost. Then nobody can
// tell who removed it.
func (r *run) doubtful(l *recipes.Lock) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.doubts[l.Token()]
}

func (r *run) noteFate(p *passage, f dlocktest.Fault) {
	switch {
	case f.Lose && p.request.Stage == dlocktest.StageRequest:
		r.note("%v is lost", p)
		r.count("request lost")
	case f.Lose:
		r.note("%v is lost", p)
		r.count("reply lost")
	case f.End:
		r.note("%v: the session ends", p)
		r.count("session ended")
	case f.Repeat:
		r.note("%v is sent twice", p)
		r.count("request repeated")
	case f.CloseAfter > 0:
		r.note("%v, to close after %v", p, f.CloseAfter)
		r.count("watch closed early")
	default:
		r.note("%v", p)
	}
}
