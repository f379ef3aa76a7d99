package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/dlock-go/dlock"
)

// workers are all workers of a run.
type workers []*worker

// newWorkers returns the workers, each with a plan that it chooses at random. It
// does no I/O.
func newWorkers(s *settings, open opener, count counter, log reporter) (workers, error) {
	random := rand.New(rand.NewPCG(s.seed, s.seed))
	digits := max(2, len(strconv.Itoa(s.workers)))
	var c workers
	for i := range s.workers {
		w := &worker{
			name:    fmt.Sprintf("%s-%0*d", s.host, digits, i+1),
			hold:    s.hold,
			plan:    choosePlan(random, s),
			counter: count,
			log:     log,
		}
		l, err := open(w.name, w.trace())
		if err != nil {
			c.close() // no client has a session yet
			return nil, err
		}
		w.locker = l
		c = append(c, w)
	}
	return c, nil
}

// longestPause limits the pauses of a worker, so that a run with long holds
// spends its time on holds.
const longestPause = 100 * time.Millisecond

// choosePlan returns the mode of each attempt of a worker, and a pause before it.
// A pause is at most as long as a hold. The pauses differ, so that the workers do
// not all arrive at the same moment.
func choosePlan(random *rand.Rand, s *settings) []intent {
	plan := make([]intent, s.rounds)
	for i := range plan {
		plan[i].mode = dlock.Exclusive
		if random.Float64() < s.sharedRatio {
			plan[i].mode = dlock.Shared
		}
		plan[i].after = time.Duration(random.Float64() * float64(min(s.hold, longestPause)))
	}
	return plan
}

var errInterrupted = errors.New("interrupted before it began")

// connectAll returns nil once every worker has a session. The first worker
// connects before the others, so that only one client asks a store that is not
// there.
func connectAll(ctx context.Context, c workers, limit time.Duration) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := c[0].connect(limited)
	if err == nil {
		err = c[1:].each(func(w *worker) error { return w.connect(limited) })
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return errInterrupted
	case limited.Err() != nil:
		return fmt.Errorf("no session within %v: %w", limit, err)
	}
	return err
}

// work runs all workers until they have done or ctx has ended.
func (c workers) work(ctx context.Context) {
	_ = c.each(func(w *worker) error { w.run(ctx); return nil })
}

// close closes the clients of all workers, and returns the errors of those that
// failed to close.
func (c workers) close() []error {
	var mu sync.Mutex
	var errs []error
	_ = c.each(func(w *worker) error {
		if err := w.locker.Close(); err != nil {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, fmt.Errorf("%s: %w", w.name, err))
		}
		return nil
	})
	return errs
}

// each calls f for all workers at the same time, waits for all calls, and returns
// the error of the first worker that has one.
func (c workers) each(f func(*worker) error) error {
	errs := make([]error, len(c))
	var all sync.WaitGroup
	for i, w := range c {
		all.Go(func() { errs[i] = f(w) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
