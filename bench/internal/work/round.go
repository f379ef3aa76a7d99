package work

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// round is the sessions and contenders of one round.
type round struct {
	plan       Plan
	sessions   []session
	contenders []contender
	holder     contender // drain and try: holds before go

	started   chan struct{} // closed by go
	timedFrom mark          // what is measured begins here
	granted   atomic.Int64  // drain: how many have been let in
	deadline  time.Time     // loop and try: set before started is closed
	running   sync.WaitGroup
	counts    []int64

	mu        sync.Mutex
	err       error
	tries     int64
	latencies []int64
}

// openRound opens the sessions. Every session has locked and unlocked once when it returns, so that
// what a library does once per session or lock is not measured.
func openRound(open library, p Plan) (_ *round, err error) {
	r := &round{plan: p, started: make(chan struct{}), counts: make([]int64, p.Contenders)}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	for range p.Sessions {
		s, err := open(p)
		if s != nil {
			r.sessions = append(r.sessions, s)
		}
		if err != nil {
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

// startContenders starts the contenders; they wait for started, or in the queue.
func (r *round) startContenders(open library) error {
	if r.plan.Kind == Drain || r.plan.Held {
		if err := r.hold(open); err != nil {
			return err
		}
	}
	switch r.plan.Kind {
	case Loop:
		r.start(r.loop)
	case Try:
		r.start(r.try)
	case Drain:
		r.start(r.wait)
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

func (r *round) hold(open library) error {
	s, err := open(r.plan)
	if s != nil {
		r.sessions = append(r.sessions, s)
	}
	if err != nil {
		return err
	}
	if r.holder, err = s.contender(r.plan.Path); err != nil {
		return err
	}
	return r.holder.lock()
}

func (r *round) start(f func(i int, c contender) error) {
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

// close ends what openRound began; the sessions end side by side, as processes would.
func (r *round) close() error {
	errs := make([]error, len(r.sessions))
	var all sync.WaitGroup
	for i, s := range r.sessions {
		all.Go(func() { errs[i] = s.close() })
	}
	all.Wait()
	return errors.Join(errs...)
}
