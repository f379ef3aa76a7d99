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
	var latencies thinnedList
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
			latencies.add(time.Since(began).Nanoseconds())
		}
	}
	if r.plan.Contenders == 1 {
		r.latencies = latencies.kept
	}
	return nil
}

// thinnedList keeps every value, then every second one, then every fourth: never too many to be
// reported, and as many from each time.
type thinnedList struct {
	kept   []int64
	seen   int
	stride int
}

const mostKept = 20_000

func (t *thinnedList) add(v int64) {
	if t.stride == 0 {
		t.stride = 1
	}
	if t.seen%t.stride == 0 {
		t.kept = append(t.kept, v)
	}
	t.seen++
	if len(t.kept) < mostKept {
		return
	}
	for i := range mostKept / 2 {
		t.kept[i] = t.kept[2*i]
	}
	t.kept = t.kept[:mostKept/2]
	t.stride *= 2
}

func lockAndUnlock(lock, unlock func() error) error {
	if err := lock(); err != nil {
		return err
	}
	return unlock()
}

// percentages returns numbers from 0 to 99, the same ones for the i-th contender in every language.
func percentages(i int) func() int {
	x := uint32(i + 1)
	return func() int {
		x = (x*1103515245 + 12345) & 0x7fffffff
		return int(x>>16) % 100
	}
}

func (r *round) wait(i int, c contender) error {
	if err := c.lock(); err != nil {
		return err
	}
	r.counts[i]++
	if r.granted.Add(1) == int64(r.plan.Lead) {
		r.timedFrom = now()
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

// pass has the contenders take turns. The one that is to be next has the pause to get in line and
// become idle. The first one holds the lock before; the last one keeps it until the sessions end.
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
