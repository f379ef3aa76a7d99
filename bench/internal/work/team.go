package work

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// team is the sessions and contenders of one round.
type team struct {
	plan       Plan
	sessions   []session
	contenders []contender
	holder     contender // drain and try: holds before go

	begin  chan struct{} // closed by go
	from   mark          // what is measured begins here
	let    atomic.Int64  // drain: how many have been let in
	end    time.Time     // loop and try: set before begin is closed
	done   sync.WaitGroup
	counts []int64

	mu        sync.Mutex
	err       error
	tries     int64
	latencies []int64
}

// assemble opens the sessions. Every session has locked and unlocked once when it returns, so that
// what a library does once per session or lock is not measured.
func assemble(open library, p Plan) (_ *team, err error) {
	t := &team{plan: p, begin: make(chan struct{}), counts: make([]int64, p.Contenders)}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.close())
		}
	}()
	for range p.Sessions {
		s, err := open(p)
		if s != nil {
			t.sessions = append(t.sessions, s)
		}
		if err != nil {
			return nil, err
		}
	}
	for i := range p.Contenders {
		c, err := t.sessions[i%p.Sessions].contender(p.Path)
		if err != nil {
			return nil, err
		}
		t.contenders = append(t.contenders, c)
	}
	for i := range min(p.Sessions, p.Contenders) {
		if err := both(t.contenders[i].lock, t.contenders[i].unlock); err != nil {
			return nil, err
		}
	}
	return t, t.takePlaces(open)
}

// takePlaces starts the contenders; they wait for begin, or in the queue.
func (t *team) takePlaces(open library) error {
	if t.plan.Kind == Drain || t.plan.Held {
		if err := t.hold(open); err != nil {
			return err
		}
	}
	switch t.plan.Kind {
	case Loop:
		t.start(t.loop)
	case Try:
		t.start(t.try)
	case Drain:
		t.start(t.wait)
	case Pass:
		if err := t.contenders[0].lock(); err != nil {
			return err
		}
		t.done.Go(t.pass)
	default:
		return fmt.Errorf("bench: unknown kind of plan %q", t.plan.Kind)
	}
	return nil
}

func (t *team) hold(open library) error {
	s, err := open(t.plan)
	if s != nil {
		t.sessions = append(t.sessions, s)
	}
	if err != nil {
		return err
	}
	if t.holder, err = s.contender(t.plan.Path); err != nil {
		return err
	}
	return t.holder.lock()
}

func (t *team) start(f func(i int, c contender) error) {
	for i, c := range t.contenders {
		t.done.Go(func() {
			if err := f(i, c); err != nil {
				t.fail(err)
			}
		})
	}
}

func (t *team) fail(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.err = errors.Join(t.err, err)
}

// close ends what assemble began; the sessions end side by side, as processes would.
func (t *team) close() error {
	errs := make([]error, len(t.sessions))
	var all sync.WaitGroup
	for i, s := range t.sessions {
		all.Go(func() { errs[i] = s.close() })
	}
	all.Wait()
	return errors.Join(errs...)
}
