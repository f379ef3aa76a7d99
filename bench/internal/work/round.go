package work

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

type round struct {
	plan       Plan
	sessions   []session
	contenders []contender
	holder     contender // Drain, Held: holds the lock from the start

	started   chan struct{} // closed by the command "go"
	timedFrom time.Time     // start of the measured part
	allocs    int64         // allocations of the process at timedFrom
	granted   atomic.Int64  // Drain: grants so far
	deadline  time.Time     // Loop, Try: set before started is closed
	running   sync.WaitGroup
	counts    []int64

	mu        sync.Mutex
	err       error
	tries     int64
	latencies []int64
}

// openRound opens the sessions and starts the contenders. Every session first
// locks and unlocks once, so that its setup is not measured.
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

// openSession opens a session and adds it to r.sessions, even after an error,
// so that r.close closes it.
func (r *round) openSession(open library) (session, error) {
	s, err := open(r.plan)
	if s != nil {
		r.sessions = append(r.sessions, s)
	}
	return s, err
}

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

func (r *round) startAll(f func(i int, c contender) error) {
	for i, c := range r.contenders {
		r.running.Go(func() {
			if err := f(i, c); err != nil {
				r.fail(err)
			}
		})
	}
}

func (r *round) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = errors.Join(r.err, err)
}

// close closes all sessions concurrently, as separate processes would.
func (r *round) close() error {
	errs := make([]error, len(r.sessions))
	var closing sync.WaitGroup
	for i, s := range r.sessions {
		closing.Go(func() { errs[i] = s.close() })
	}
	closing.Wait()
	return errors.Join(errs...)
}
