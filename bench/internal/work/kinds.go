package work

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

func (r *round) loop(i int, c contender) error {
	shared, hasShared := c.(reader)
	if r.plan.Reads > 0 && !hasShared {
		return errors.New("bench: this library has no shared locks")
	}
	percentage := percentages(i)
	var latencies []int64
	<-r.started
	for {
		began := time.Now()
		if !began.Before(r.deadline) {
			break
		}
		var err error
		if r.plan.Reads > 0 && percentage() < r.plan.Reads {
			err = lockAndUnlock(shared.rlock, shared.runlock)
		} else {
			err = lockAndUnlock(c.lock, c.unlock)
		}
		if err != nil {
			return err
		}
		r.counts[i]++
		if r.plan.Contenders == 1 {
			latencies = append(latencies, time.Since(began).Nanoseconds())
		}
	}
	if r.plan.Contenders == 1 {
		r.latencies = latencies
	}
	return nil
}

func lockAndUnlock(lock, unlock func() error) error {
	if err := lock(); err != nil {
		return err
	}
	return unlock()
}

// percentages returns a generator of pseudo-random numbers from 0 to 99, the
// same in Go, Java and Python. The argument i is the seed.
func percentages(i int) func() int {
	x := uint32(i + 1)
	return func() int {
		x = (x*1103515245 + 12345) & 0x7fffffff
		return int(x>>16) % 100
	}
}

func (r *round) lockOnce(i int, c contender) error {
	if err := c.lock(); err != nil {
		return err
	}
	r.counts[i]++
	if r.granted.Add(1) == int64(r.plan.Untimed) {
		r.timedFrom, r.allocs = time.Now(), allocs()
	}
	return c.unlock()
}

func (r *round) try(i int, c contender) error {
	trier, can := c.(trier)
	if !can {
		return errors.New("bench: this library cannot try")
	}
	var tries int64
	defer func() { atomic.AddInt64(&r.tries, tries) }()
	<-r.started
	for time.Now().Before(r.deadline) {
		won, err := trier.tryLock()
		if err != nil {
			return err
		}
		tries++
		if !won {
			continue
		}
		r.counts[i]++
		if err := c.unlock(); err != nil {
			return err
		}
	}
	return nil
}

// pass hands the lock back and forth between two contenders. Before each
// release it waits until the next contender is idle in the queue.
func (r *round) pass() {
	<-r.started
	holder, next := r.contenders[0], r.contenders[1]
	granted := make(chan grant, 1)
	for n := range r.plan.Count {
		go func() {
			err := next.lock()
			granted <- grant{time.Now(), err}
		}()
		time.Sleep(time.Duration(r.plan.Millis) * time.Millisecond)
		released := time.Now()
		if err := holder.unlock(); err != nil {
			r.fail(err)
			return
		}
		g := <-granted
		if g.err != nil || g.at.Before(released) {
			r.fail(errors.Join(g.err, fmt.Errorf("bench: hand-over %d was granted %v after the release", n, g.at.Sub(released))))
			return
		}
		r.latencies = append(r.latencies, g.at.Sub(released).Nanoseconds())
		r.counts[n%2]++
		holder, next = next, holder
	}
}

type grant struct {
	at  time.Time
	err error
}
