package generations

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"time"
)

// run is one history, in virtual time.
type run struct {
	rules    *rules
	rand     *rand.Rand
	now      time.Duration
	events   []event // in reverse order: the next event is last
	ids      int
	servers  []*server
	clients  []*client
	official *server // the master that the operator wants
	calm     bool    // no more faults are injected

	top     time.Duration // token that the next grant must exceed
	latest  time.Duration // highest server time used for a token
	grants  int
	failure string
	tracing bool
	trace   []string
}

const (
	start   = 10 * time.Minute
	trouble = 4 * timeout
)

func play(rules *rules, seed uint64, tracing bool) *run {
	r := newRun(rules, seed)
	r.tracing = tracing
	r.after(timeout/4+r.span(timeout/2), r.disturb)
	r.goOn(start+trouble, func() bool { return false })
	r.calmDown()
	enough := r.grants + 3
	r.goOn(r.now+20*timeout, func() bool { return r.grants >= enough })
	if r.failure == "" && r.grants < enough {
		r.fail("nobody gets the lock although all servers are well")
	}
	return r
}

func newRun(rules *rules, seed uint64) *run {
	r := &run{rules: rules, rand: rand.New(rand.NewPCG(seed, 1)), now: start}
	for i := range 1 + r.rand.IntN(5) {
		s := &server{run: r, number: i, follows: r.official, data: data{sessions: map[int]time.Duration{}}}
		r.servers = append(r.servers, s)
		if i == 0 {
			r.official = s
			s.boots()
			s.promote()
			s.begin(s.replID)
		}
		s.data, s.saved = r.official.data.clone(), r.official.data.clone()
		r.after(0, s.replicate)
	}
	for i := range 3 {
		c := &client{run: r, number: i}
		r.clients = append(r.clients, c)
		r.after(r.span(timeout/4), c.connect)
	}
	return r
}

func (r *run) goOn(until time.Duration, enough func() bool) {
	for r.failure == "" && r.now < until && !enough() {
		e := r.events[len(r.events)-1]
		r.events = r.events[:len(r.events)-1]
		r.now = e.at
		e.happen()
	}
}

func (r *run) judge(c *client, token time.Duration) {
	r.grants++
	r.note("client %d is granted token %v by server %d", c.number, token, c.server.number)
	for _, other := range r.clients {
		if other != c && other.believes() {
			r.fail("clients %d and %d hold the lock, with tokens %v and %v", other.number, c.number, other.holds, token)
		}
	}
	if token <= r.top {
		r.fail("token %v after %v", token, r.top)
	}
	r.top = max(r.top, token)
}

func (r *run) fail(format string, args ...any) {
	r.note(format, args...)
	r.failure = fmt.Sprintf(format, args...)
}

func (r *run) note(format string, args ...any) {
	if r.tracing {
		r.trace = append(r.trace, fmt.Sprintf("%8.3f ", (r.now-start).Seconds())+fmt.Sprintf(format, args...))
	}
}

func (r *run) chance(percent int) bool { return r.rand.IntN(100) < percent }
func (r *run) span(limit time.Duration) time.Duration {
	return time.Duration(r.rand.Int64N(int64(limit)))
}

func (r *run) fresh() int {
	r.ids++
	return r.ids
}

// latency returns how long a message takes, sometimes longer than any lease.
func (r *run) latency() time.Duration {
	switch {
	case r.calm || r.chance(85):
		return r.span(timeout / 200)
	case r.chance(85):
		return r.span(timeout / 4)
	}
	return r.span(2 * timeout)
}

func (r *run) send(deliver func()) {
	if r.calm || !r.chance(2) {
		r.after(r.latency(), deliver)
	}
}

func (r *run) confirm(s *server, tell func(bool)) {
	version, id, until := s.data.version, s.replID, r.now+within
	var look func()
	look = func() {
		n := 0
		for _, v := range s.acked {
			if v >= version {
				n++
			}
		}
		switch {
		case s.replID != id || s.down || r.now > until:
			tell(false)
		case n >= r.rules.confirms(len(r.servers)):
			tell(true)
		default:
			r.after(timeout/100, look)
		}
	}
	look()
}

func (r *run) after(d time.Duration, happen func()) {
	at := r.now + d
	i := sort.Search(len(r.events), func(i int) bool { return r.events[i].at <= at })
	r.events = slices.Insert(r.events, i, event{at, happen})
}

type event struct {
	at     time.Duration
	happen func()
}
