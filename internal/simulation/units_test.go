package simulation

import (
	"context"
	"errors"
	"flag"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes"
)

var allUnits = flag.Bool("units", false, "use semaphores in every run, not only in one of eight")

// units returns how many units the semaphores of the run have. It is zero if
// the run has none.
func (r *run) units() int {
	if *allUnits || r.seed%16 == 12 || r.seed%16 == 13 {
		return 2 + int(r.seed/16%3)
	}
	return 0
}

// weigh turns an attempt into one for units of a semaphore, in most rounds of a
// run that has semaphores.
func (a *actor) weigh(t *attempt, opts []recipes.Option) {
	n := a.run.units()
	if n == 0 || !a.chance(75) {
		return
	}
	t.units, t.mode, t.try = 1+a.rand.IntN(n), recipes.Shared, a.chance(15)
	opts = append(opts, recipes.WithHostname(a.host), a.ownData(), recipes.WithWait(a.wait()))
	s := a.client.current().Semaphore(t.queue, n, opts...)
	t.name, t.call = "acquire", func(ctx context.Context) (*recipes.Lock, error) { return s.Acquire(ctx, t.units) }
	if t.try {
		t.name, t.call = "try acquire", func(ctx context.Context) (*recipes.Lock, error) { return s.TryAcquire(ctx, t.units) }
	}
}

func (a *actor) useUnits(queue string, l *recipes.Lock) {
	ctx := l.Context(context.Background())
	a.hold(ctx)
	if err := l.Downgrade(ctx); err == nil {
		a.run.fail("%v: units were downgraded", a)
	}
	a.unlock(queue, l)
	if ctx.Err() == nil {
		a.run.fail("%v: the context goes on after Unlock", a)
	}
}

func (h *holding) excludes(other *holding) bool {
	if (h.units > 0) != (other.units > 0) {
		return true
	}
	return h.lock.Mode() == recipes.Exclusive || other.lock.Mode() == recipes.Exclusive
}

// judgeUnits fails the run if more units of a queue are held than there are.
func (r *run) judgeUnits(all []*holding) {
	held := map[string]int{}
	for _, h := range all {
		if _, removed := r.removedAt(h.lock); !removed && h.units > 0 && h.lock.Err() == nil {
			held[h.queue] += h.units
		}
	}
	for queue, n := range held {
		if n > r.units() {
			r.fail("%d of %d units of %s are held", n, r.units(), queue)
		}
	}
}

// unitsIn parses the kind of a semaphore's node.
func unitsIn(n driver.Node) (weight int, ok bool) {
	for _, letter := range []string{"-S", "-H"} {
		if _, rest, found := strings.Cut(n.Name, letter); found {
			return int(rest[0] - '0'), true // a run has at most four units
		}
	}
	return 0, false
}

// judgeServed fails the run if a contender waits for units although they are
// free, and no client was kept from the store for learnLimit.
func (r *run) judgeServed() {
	free := map[int64]time.Time{}
	for _, queue := range r.queues {
		sum := 0
		for _, n := range r.nodes(queue) {
			weight, ok := unitsIn(n)
			if sum += weight; !ok || sum > r.units() {
				break
			}
			info, there := r.info(queue, n.Name)
			if !there || r.holds(info.Token) || !r.ownerOf(info).contendsWith(info) {
				continue
			}
			since, seen := r.free[info.Token]
			if !seen {
				since = time.Now()
			}
			free[info.Token] = since
			if time.Since(r.calmSince(since)) > learnLimit {
				r.fail("%v waits as %s for units of %s that are free", r.ownerOf(info), n.Name, queue)
			}
		}
	}
	r.free = free
}

func (r *run) holds(token int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.held {
		if l.Token() == token && !errors.Is(l.Err(), recipes.ErrLost) {
			return true
		}
	}
	return false
}

// calmSince is like that of a client, for all clients.
func (r *run) calmSince(t time.Time) time.Time {
	for _, c := range r.clients {
		t = c.calmSince(t)
	}
	return t
}
