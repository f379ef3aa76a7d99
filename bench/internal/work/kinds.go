package work

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

func (t *team) loop(i int, c contender) error {
	r, hasShared := c.(reader)
	if t.plan.Reads > 0 && !hasShared {
		return errors.New("bench: this library has no shared locks")
	}
	shared := dice(i)
	var latencies thinned
	<-t.begin
	for {
		began := time.Now()
		if !began.Before(t.end) {
			break
		}
		var err error
		if t.plan.Reads > 0 && shared() < t.plan.Reads {
			err = both(r.rlock, r.runlock)
		} else {
			err = both(c.lock, c.unlock)
		}
		if err != nil {
			return err
		}
		t.counts[i]++
		if t.plan.Contenders == 1 {
			latencies.add(time.Since(began).Nanoseconds())
		}
	}
	if t.plan.Contenders == 1 {
		t.latencies = latencies.kept
	}
	return nil
}

// thinned keeps every value, then every second one, then every fourth: never too many to be
// reported, and as many from each time.
type thinned struct {
	kept   []int64
	seen   int
	stride int
}

const mostKept = 20_000

func (t *thinned) add(v int64) {
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

func both(lock, unlock func() error) error {
	if err := lock(); err != nil {
		return err
	}
	return unlock()
}

// dice returns numbers from 0 to 99, the same ones for the i-th contender in every language.
func dice(i int) func() int {
	x := uint32(i + 1)
	return func() int {
		x = (x*1103515245 + 12345) & 0x7fffffff
		return int(x>>16) % 100
	}
}

func (t *team) wait(i int, c contender) error {
	if err := c.lock(); err != nil {
		return err
	}
	t.counts[i]++
	if t.let.Add(1) == int64(t.plan.Lead) {
		t.from = now()
	}
	return c.unlock()
}

func (t *team) try(i int, c contender) error {
	trier, can := c.(trier)
	if !can {
		return errors.New("bench: this library cannot try")
	}
	var tries int64
	defer func() { atomic.AddInt64(&t.tries, tries) }()
	<-t.begin
	for time.Now().Before(t.end) {
		won, err := trier.tryLock()
		if err != nil {
			return err
		}
		tries++
		if !won {
			continue
		}
		t.counts[i]++
		if err := c.unlock(); err != nil {
			return err
		}
	}
	return nil
}

// pass has the contenders take turns. The one that is to be next has the pause to get in line and
// become idle. The first one holds the lock before; the last one keeps it until the sessions end.
func (t *team) pass() {
	<-t.begin
	holder, next := t.contenders[0], t.contenders[1]
	granted := make(chan grant, 1)
	for n := range t.plan.Count {
		go func() {
			err := next.lock()
			granted <- grant{time.Now(), err}
		}()
		time.Sleep(time.Duration(t.plan.Millis) * time.Millisecond)
		released := time.Now()
		if err := holder.unlock(); err != nil {
			t.fail(err)
			return
		}
		g := <-granted
		if g.err != nil || g.at.Before(released) {
			t.fail(errors.Join(g.err, fmt.Errorf("bench: hand-over %d was granted %v after the release", n, g.at.Sub(released))))
			return
		}
		t.latencies = append(t.latencies, g.at.Sub(released).Nanoseconds())
		t.counts[n%2]++
		holder, next = next, holder
	}
}

type grant struct {
	at  time.Time
	err error
}
