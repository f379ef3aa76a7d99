package dlocktest

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
)

// soundTimeout is short, because Run waits for about fifteen session timeouts.
const soundTimeout = 300 * time.Millisecond

// store wraps memdriver.Store. Its sessions are faulty if plant is not nil.
type store struct {
	*memdriver.Store
	plant plant
	grace *atomic.Pointer[time.Time] // when sessions may begin again; nil without losses
}

// lose removes all sessions and nodes without notice, but keeps the counter of
// tokens.
func (s store) lose() {
	wait := soundTimeout
	var restore []func()
	owners.Range(func(outer, o any) bool {
		if o.(owner).Faults != s.Faults() {
			return true
		}
		f := faultyOf(outer.(driver.Session))
		if restore = append(restore, f.restored); !f.losing(&wait) {
			o.(owner).Drop(o.(owner).inner)
		}
		return true
	})
	for _, queue := range []string{"q", "other"} {
		s.Faults().RemoveQueue(queue)
	}
	for _, f := range restore {
		f()
	}
	ends := time.Now().Add(wait)
	s.grace.Store(&ends)
}

var owners sync.Map // map[driver.Session]owner, by the session that Connect has returned

type owner struct {
	memdriver.Faults
	inner driver.Session
}

func (s store) Connect(ctx context.Context) (driver.Session, error) {
	if s.grace != nil && s.grace.Load() != nil {
		time.Sleep(time.Until(*s.grace.Load()))
	}
	inner, err := s.Store.Connect(ctx)
	if err != nil {
		return nil, err
	}
	outer := inner
	if s.plant != nil {
		f := newFaulty(inner.(base), s.Store)
		s.plant(f)
		f.connected(ctx)
		if outer = f; f.bare {
			outer = bare{f}
		}
	}
	owners.Store(outer, owner{s.Faults(), inner})
	return outer, nil
}

type bare struct{ driver.Session }

func ownerOf(s driver.Session) owner {
	o, _ := owners.Load(s)
	return o.(owner)
}

// configOf returns a configuration with every hook. Unless p is nil, its
// sessions are faulty.
func configOf(p plant) Config {
	open := func(opts ...memdriver.Option) store {
		return store{memdriver.New(append(opts, memdriver.WithSessionTimeout(soundTimeout))...), p, nil}
	}
	return Config{
		New: func(*testing.T) driver.Connector { return open() },
		NewNearRollOver: func(*testing.T) driver.Connector {
			const limit = 1e18 - 1<<20
			return open(memdriver.WithSequenceStart(limit-40), memdriver.WithSequenceLimit(limit))
		},
		NewLossy: func(*testing.T) (driver.Connector, func()) {
			s := open()
			s.grace = new(atomic.Pointer[time.Time])
			return s, s.lose
		},
		SessionTimeout: soundTimeout,
		Parallel:       4,
		Complete:       true,
		Drop: func(_ *testing.T, s driver.Session) {
			faultyOf(s).expiring()
			ownerOf(s).Drop(ownerOf(s).inner)
		},
		CutOff: func(_ *testing.T, s driver.Session) func() {
			heal := ownerOf(s).CutOff(ownerOf(s).inner)
			faultyOf(s).cut(true)
			return func() { heal(); faultyOf(s).cut(false) }
		},
		Reset: func(_ *testing.T, s driver.Session) {
			faultyOf(s).reset()
			ownerOf(s).Reset(ownerOf(s).inner)
		},
		SilenceNotices: func(_ *testing.T, s driver.Session) { faultyOf(s).silenced() }, // no-op unless faulty: notices share the connection
		LoseRequest: func(_ *testing.T, s driver.Session, op faults.Op) {
			if !faultyOf(s).lose(op, false) {
				ownerOf(s).LoseRequest(ownerOf(s).inner, op)
			}
		},
		LoseReply: func(_ *testing.T, s driver.Session, op faults.Op) {
			if !faultyOf(s).lose(op, true) {
				ownerOf(s).LoseReply(ownerOf(s).inner, op)
			}
		},
		HoldRequest: func(_ *testing.T, s driver.Session, op faults.Op) (arrive func()) {
			if hold := faultyOf(s).hold; hold != nil {
				return hold()
			}
			return ownerOf(s).HoldRequest(ownerOf(s).inner, op)
		},
		DelayReplies: func(_ *testing.T, s driver.Session, d time.Duration) {
			ownerOf(s).DelayReplies(ownerOf(s).inner, d)
		},
		Pause: func(_ *testing.T, s driver.Session, d time.Duration) {
			faultyOf(s).paused(d)
			ownerOf(s).Pause(ownerOf(s).inner, d)
		},
		RemoveQueue: func(_ *testing.T, c driver.Connector, queue string) { c.(store).Faults().RemoveQueue(queue) },
		RemoveNode: func(_ *testing.T, c driver.Connector, queue, name string) {
			c.(store).Faults().RemoveNode(queue, name)
		},
		PutNode: func(t *testing.T, c driver.Connector, queue, name string, data []byte) {
			if err := c.(store).Faults().PutNode(queue, name, data); err != nil {
				t.Fatal(err)
			}
		},
	}
}

// running records which cases run, to check that these may run in parallel.
type running struct {
	mu    sync.Mutex
	all   map[string]testCase // all cases, by the name of their subtest
	cases map[string]testCase // those that are running
	most  int
}

func (r *running) begin(t *testing.T) {
	_, name, _ := strings.Cut(t.Name(), "/")
	k, isCase := r.all[name]
	if !isCase {
		return // t probes an ability or a hook
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cases[name] = k
	r.most = max(r.most, len(r.cases))
	busy := 0
	for other, k := range r.cases {
		if !k.waits() {
			busy++
		}
		if strings.HasPrefix(other, "rule11/") && len(r.cases) > 1 {
			t.Errorf("%s runs beside %s", name, other)
		}
	}
	if busy > 1 {
		t.Errorf("%d busy cases run at the same time", busy)
	}
	t.Cleanup(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.cases, name)
	})
}

// Cases that wait must run in parallel with a case that sends many requests.
func TestSoundDriverPasses(t *testing.T) {
	config := configOf(nil)
	config.Abilities = []Ability{AbilityInspect, AbilityAhead, AbilityArmed, AbilityReleased, AbilityCheck}
	r := running{all: make(map[string]testCase), cases: make(map[string]testCase)}
	for _, rule := range rules {
		for _, k := range rule.cases {
			r.all[rule.id()+"/"+k.name] = k
		}
	}
	open := config.New
	config.New = func(t *testing.T) driver.Connector {
		r.begin(t)
		return open(t)
	}
	Run(t, config)
	if r.most < 2 || r.most > config.Parallel {
		t.Errorf("at most %d cases ran at the same time, expected 2 to %d", r.most, config.Parallel)
	}
}

func plain(s *faulty) {
	s.bare = true
	unknowing(s)
	s.after(faults.OpWatch, func(r *request) { r.watch = withoutReleased(r.watch) })
}

func TestPlainDriverPasses(t *testing.T) { Run(t, configOf(plain)) }
