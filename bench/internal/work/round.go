package work

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// round holds the sessions and the contenders of one round.
type round struct {
	plan       Plan
	sessions   []session
	contenders []contender
	holder     contender // holds the lock from the start of a plan of kind Drain, or of kind Try with Held

	started   chan struct{} // closed when the command "go" arrives
	timedFrom snapshot      // the start of the measured part
	granted   atomic.Int64  // in a plan of kind Drain: the number of grants so far
	deadline  time.Time     // in a plan of kind Loop or Try: when the contenders stop; set before the channel started is closed
	running   sync.WaitGroup
	counts    []int64

	mu        sync.Mutex
	err       error
	tries     int64
	latencies []int64
	released  time.Time // in a plan of kind Drain: just before the latest unlock of a contender
}

// openRound opens the sessions and starts the contenders. Before it returns, every
// session has locked and unlocked once, so that the measurement does not contain
// what a library does once for each session or lock. After an error nothing stays
// open.
func openRound(open library, p Plan) (_ *round, err error) {
	r := &round{plan: p, started: make(chan struct{}), counts: make([]int64, p.Contenders)}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	for range p.Sessions {
		if _, err := r.openSession(open); err != nil {
			return nil, err
		}
	}
	for i := range p.Contenders {
		c, err := r.sessions[i%p.Sessions].contender(p.Path)
		if err != nil {
			return nil, err
		}
		r.contenders = append(r.contenders, c)
	}
	for i := range min(p.Sessions, p.Contenders) {
		if err := lockAndUnlock(r.contenders[i].lock, r.contenders[i].unlock); err != nil {
			return nil, err
		}
	}
	return r, r.startContenders(open)
}

// openSession opens one session. It adds the session to r.sessions even if open
// returned an error as well, so that r.close closes it.
func (r *round) openSession(open library) (session, error) {
	s, err := open(r.plan)
	if s != nil {
		r.sessions = append(r.sessions, s)
	}
	return s, err
}

// startContenders starts the contenders. In a plan of kind Drain they wait in
// the queue, behind the holder. In all other plans they wait until started is
// closed.
func (r *round) startContenders(open library) error {
	if r.plan.Kind == Drain || r.plan.Held {
		if err := r.lockWithHolder(open); err != nil {
			return err
		}
	}
	switch r.plan.Kind {
	case Loop:
		r.startAll(r.loop)
	case Try:
		r.startAll(r.try)
	case Drain:
		r.startAll(r.lockOnce)
	case Pass:
		if err := r.contenders[0].lock(); err != nil {
			return err
		}
		r.running.Go(r.pass)
	default:
		return fmt.Errorf("bench: unknown kind of plan %q", r.plan.Kind)
	}
	return nil
}

// lockWithHolder opens one more session, which takes the lock.
func (r *round) lockWithHolder(open library) error {
	s, err := r.openSession(open)
	if err != nil {
		return err
	}
	if r.holder, err = s.contender(r.plan.Path); err != nil {
		return err
	}
	return r.holder.lock()
}

// startAll calls f for each contender, on a goroutine of its own.
func (r *round) startAll(f func(i int, c contender) error) {
	for i, c := range r.contenders {
		r.running.Go(func() {
			if err := f(i, c); err != nil {
				r.fail(err)
			}
		})
	}
}

// fail adds an error to those that measure returns.
func (r *round) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = errors.Join(r.err, err)
}

// close closes all sessions at the same time, as separate processes would.
func (r *round) close() error {
	errs := make([]error, len(r.sessions))
	var closing sync.WaitGroup
	for i, s := range r.sessions {
		closing.Go(func() { errs[i] = s.close() })
	}
	closing.Wait()
	return errors.Join(errs...)
}
