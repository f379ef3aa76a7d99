package dlocktest

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
)

var endSabotages = []sabotage{
	{"reads no clock", "timers only, which do not run while the process is paused",
		func(s *faulty) { s.endsWith(s.base.Done()) }},
	{"learns of its end late", "any mistake in the time that the lease runs", endsLate},
	{"leaves no margin", "a lease that is as long as the store's timeout",
		func(s *faulty) { s.lease(soundTimeout, false) }},
	{"counts its lease from the arrival of replies", "renewing the lease when the answer to a heartbeat arrives",
		func(s *faulty) { s.lease(soundTimeout*3/4, true) }},
	{"counts its lease from the arrival of replies, in a store that is slow to end sessions", "an expirer that runs now and then, which hides that a lease is too long",
		func(s *faulty) {
			s.lease(soundTimeout*3/5, true)
			s.describe = func(i *driver.SessionInfo) { i.Timeout = soundTimeout * 2 / 3 }
		}},
	{"takes the answer that its session is gone for an error that passes", "a client library whose errors are all treated alike",
		func(s *faulty) {
			s.lease(soundTimeout*3/4, false)
			s.expiring = func() {}
			s.on(faults.OpCreate, func(r *request, send func()) {
				if send(); r.err != nil && s.base.Err() != nil {
					r.err = cmp.Or(s.Err(), errReset)
				}
			})
		}},
	{"ends a session that was heard from after its deadline was read", "SQL: one statement that finds the sessions, and another that ends them",
		func(s *faulty) {
			var heard atomic.Pointer[time.Time]
			hear := func(_, _ time.Duration) {
				now := time.Now()
				heard.Store(&now)
			}
			hear(0, 0)
			s.base.OnHeartbeat(hear)
			go func() {
				for s.base.Err() == nil {
					time.Sleep(soundTimeout / 32)
					if silent := time.Since(*heard.Load()); silent > soundTimeout/4 {
						time.Sleep(soundTimeout - silent)
						s.store.Faults().Drop(s.base)
					}
				}
			}()
		}},
	{"purges a session before its nodes", "sessions that the store ends by a time to live, and nodes that the drivers remove", purgedFirst},
	{"returns nil from Err after its end", "a lease that is renewed by an answer which comes after its end; a new session of the store under the old name",
		func(s *faulty) {
			var asked atomic.Int32
			s.err = func() error {
				err := s.base.Err()
				if err != nil && asked.Add(1) > 6 {
					return nil
				}
				return err
			}
		}},
	{"closes Done only when Err is called", "an Err that reads the clocks, and no timer",
		func(s *faulty) {
			done := make(chan struct{})
			end := sync.OnceFunc(func() { close(done) })
			s.done = done
			s.err = func() error {
				err := s.base.Err()
				if err != nil {
					end()
				}
				return err
			}
			s.on(faults.OpClose, func(_ *request, send func()) {
				send()
				_ = s.Err()
			})
		}},
	{"sends no heartbeats", "Redis, etcd: a time to live that is never renewed",
		func(s *faulty) {
			go func() {
				select {
				case <-time.After(soundTimeout):
					s.store.Faults().Expire(s.base)
				case <-s.base.Done():
				}
			}()
		}},
	{"shares one session of the store among all sessions", "one connection for the whole connector",
		func(s *faulty) {
			own, first := s.base, inStore[firstSession](s)
			s.base = first.or(own)
			s.expiring = func() { _ = s.base.Close() }
			s.on(faults.OpClose, func(_ *request, send func()) {
				_ = own.Close()
				send()
			})
		}},
}

// firstSession makes all sessions share one session in the store until that
// session ends.
type firstSession struct {
	mu sync.Mutex
	s  base
}

func (f *firstSession) or(s base) base {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.s == nil || f.s.Err() != nil {
		f.s = s
	}
	return f.s
}

func (s *faulty) endsWith(done <-chan struct{}) {
	s.done = done
	s.err = func() error {
		if closed(done) {
			return s.base.Err()
		}
		return nil
	}
}

func endsLate(s *faulty) {
	done, late := s.base.Done(), make(chan struct{})
	s.endsWith(late)
	go func() {
		<-done
		time.Sleep(soundTimeout)
		close(late)
	}()
}

// lease replaces the session's lease. If late, its term counts from a
// heartbeat's answer.
func (s *faulty) lease(term time.Duration, late bool) {
	var mu sync.Mutex
	var over error
	from, done := time.Now(), make(chan struct{})
	end := func() {
		if over == nil {
			over = driver.ErrSessionEnded
			close(done)
		}
	}
	s.done = done
	s.err = func() error {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(from) >= term {
			end()
		}
		return over
	}
	s.expiring = func() {
		mu.Lock()
		defer mu.Unlock()
		end()
	}
	s.paused = func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		from = from.Add(-d)
	}
	expire, ended := s.expiring, s.err
	s.on(faults.OpClose, func(_ *request, send func()) {
		expire()
		send()
	})
	beat := func() {
		sent := time.Now()
		_, err := s.base.List(context.Background(), "heartbeat")
		mu.Lock()
		defer mu.Unlock()
		if late {
			sent = time.Now()
		}
		if err == nil && sent.After(from) {
			from = sent
		}
	}
	go func() {
		for next := time.Now(); ended() == nil; time.Sleep(time.Millisecond) {
			if now := time.Now(); now.After(next) {
				next = now.Add(soundTimeout / 8)
				go beat()
			}
		}
	}()
}

// purgedFirst makes Close remove the session first and then its nodes, one by
// one.
func purgedFirst(s *faulty) {
	type live struct{ atomic.Int64 } // counts the sessions that have not ended
	whole, nodes, others := s.cuts(), s.places(), inStore[live](s)
	var over atomic.Bool
	others.Add(1)
	go func() {
		<-s.base.Done()
		left := others.Add(-1)
		time.Sleep(soundTimeout * 3 / 4) // wait until the store has ended the session
		if left == 0 && !over.Load() {
			nodes.each(func(queue string, _ driver.Place) { putStray(s.store, queue, writer) })
		}
	}()
	s.on(faults.OpClose, func(_ *request, send func()) {
		again := over.Swap(true)
		if send(); again {
			return
		}
		var strays []func()
		nodes.each(func(queue string, _ driver.Place) {
			name := putStray(s.store, queue, writer)
			strays = append(strays, func() { s.store.Faults().RemoveNode(queue, name) })
		})
		for _, remove := range strays {
			time.Sleep(time.Millisecond)
			if closed(whole.healed()) {
				remove()
			}
		}
	})
}
