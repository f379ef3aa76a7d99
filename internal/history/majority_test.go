package history

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/majority"
	"github.com/dlock-go/dlock/memdriver"
)

// majorities is a run on three stores, of which each fault hits one.
type majorities struct {
	*run
	judges  [3]driver.Session // by store
	holders [3]Holders        // by store
	marks   fence.Marks

	mu   sync.Mutex
	fine map[*majority.Lock][]time.Time // last time held in two stores, in three
}

func TestNoSeedBreaksAMajority(t *testing.T) {
	seen := figures{counts: map[string]int{}}
	for seed := *first; seed < *first+uint64(*seeds/10) && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) {
			m := &majorities{run: &run{
				seed: seed, rand: rand.New(rand.NewPCG(seed, 3)), gate: &gate{}, armed: map[watchKey]int{}, doubts: map[int64]bool{}, record: &recorder{},
			}, fine: map[*majority.Lock][]time.Time{}}
			m.play(t)
			if seen.count(m.counts); m.any() {
				t.Errorf("seed %d: %q\n%v", seed, m.all, m)
			}
		})
	}
	for _, event := range []string{"cut off", "restart", "session expired", "granted", "lost"} {
		assert.True(t, *seeds < 500 || t.Failed() || seen.counts[event] > 0, event)
	}
}

func (m *majorities) play(t *testing.T) {
	var stores [3]*memdriver.Store
	for s := range stores {
		stores[s] = memdriver.New()
		m.judges[s], _ = stores[s].Connect(t.Context())
	}
	var playing sync.WaitGroup
	for i := range 3 {
		mutex := &majority.Mutex{Name: "q"}
		for s, store := range stores {
			c := m.newProcess(3*i+s, store, nil)
			m.processes, mutex.Clients = append(m.processes, c), append(mutex.Clients, c.slot.client().locks)
		}
		playing.Go(func() { m.act(mutex, rand.New(rand.NewPCG(m.seed, uint64(100+i)))) })
	}
	m.faults, m.inject, m.step = m.rand.IntN(20), m.fault, m.judgeMajorities
	m.until(&playing)
	m.closeAll()
	for _, s := range m.judges {
		_ = s.Close()
	}
	for _, m.store = range stores {
		m.judgeEmptiness()
	}
}

func (m *majorities) act(mutex *majority.Mutex, draw *rand.Rand) {
	for range 1 + draw.IntN(6) {
		take, limit := mutex.Lock, time.Hour
		if n := draw.IntN(6); n == 0 {
			take = mutex.TryLock
		} else if n == 1 {
			limit = virtualPace.deadline
		}
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		l, err := take(ctx)
		cancel()
		switch {
		case err == nil:
			m.hold(l, []time.Duration{virtualPace.brief, virtualPace.longer, virtualPace.longest / 4}[draw.IntN(3)])
		case !errors.Is(err, dlock.ErrTimeout) && !errors.Is(err, dlock.ErrLocked) && !errors.Is(err, dlock.ErrUnavailable):
			m.fail("lock: %v", err)
		}
	}
}

type part struct {
	*majority.Lock
	token int64
}

func (p part) Token() int64 { return p.token }

func (m *majorities) hold(l *majority.Lock, d time.Duration) {
	m.count("granted")
	m.remark("granted: %v, tokens %v", l, l.Tokens())
	for s, token := range l.Tokens() {
		if token != 0 {
			if _, err := m.holders[s].enter(part{l, token}); err != nil {
				m.fail("store %d: %v", s, err)
			}
		}
	}
	if err := m.marks.DoAll("q", l.Tokens(), func() error { return nil }); err != nil && l.Err() == nil {
		m.fail("the holder may not write: %v", err)
	}
	m.mu.Lock()
	m.fine[l] = []time.Time{time.Now(), time.Now()}
	m.mu.Unlock()
	select {
	case <-time.After(d):
	case <-l.Context(context.Background()).Done():
		m.count("lost")
	}
	m.mu.Lock()
	delete(m.fine, l)
	m.mu.Unlock()
	if lost, err := l.Err(), l.Unlock(); lost != nil && !errors.Is(err, dlock.ErrLost) {
		m.fail("lost: %v, and Unlock says %v", lost, err)
	}
}

// judgeMajorities expects holders to notice a lost majority, and regain the
// lock in reachable stores.
func (m *majorities) judgeMajorities() {
	if m.gate.step%8 > 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for l, fine := range m.fine {
		has := 0
		for s, one := range l.All() {
			if m.judgeSession = m.judges[s]; one != nil {
				if _, stands := m.stands("q", one.Token()); stands {
					has++
				}
			}
		}
		for i := range fine {
			if has >= 2+i {
				fine[i] = time.Now()
			} else if time.Since(m.calmSince(fine[i])) > 3*learnLimit {
				m.fail("%v: held in %d stores only", l, has)
			}
		}
	}
}

func (m *majorities) fault() {
	store, kind, actor := m.rand.IntN(3), m.rand.IntN(3), m.rand.IntN(3)
	for i := range 3 {
		switch c := m.processes[3*i+store]; {
		case kind == 0:
			m.count("restart")
			m.expire(c)
		case kind == 1:
			m.cut(c)
		case i == actor:
			m.expire(c)
		}
	}
}
