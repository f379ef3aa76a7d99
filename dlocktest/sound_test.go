package dlocktest

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
)

// soundTimeout is the session timeout in these tests. It is short, because the
// kit waits for it about fifteen times.
const soundTimeout = 300 * time.Millisecond

// base is a correct session that supports everything, for broken sessions to wrap.
type base interface {
	driver.Session
	driver.Inspector
}

// A store is an in-memory store. Its sessions are wrapped by wrap, unless wrap
// is nil.
type store struct {
	*memdriver.Store
	wrap  func(base, *memdriver.Store) driver.Session
	grace *grace // nil if the store loses no data
}

// grace is the time after a loss for which no session begins.
type grace struct {
	mu   sync.Mutex
	ends time.Time
}

func (g *grace) wait() {
	g.mu.Lock()
	defer g.mu.Unlock()
	time.Sleep(time.Until(g.ends))
}

// lose removes all sessions and nodes, without notifying the sessions. The
// counter of tokens is not reset.
func (s store) lose() {
	wait := soundTimeout
	var restore []func()
	owners.Range(func(outer, o any) bool {
		if o.(owner).Faults != s.Faults() {
			return true
		}
		var how loss
		if l, ok := outer.(lossListener); ok {
			how = l.losingData(&wait)
		}
		if how.restore != nil {
			restore = append(restore, how.restore)
		}
		if !how.survived {
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
	s.grace.mu.Lock()
	defer s.grace.mu.Unlock()
	s.grace.ends = time.Now().Add(wait)
}

var owners sync.Map // maps each session that the kit uses to its owner

type owner struct {
	memdriver.Faults
	inner driver.Session
}

func (s store) Connect(ctx context.Context) (driver.Session, error) {
	if s.grace != nil {
		s.grace.wait()
	}
	inner, err := s.Store.Connect(ctx)
	if err != nil {
		return nil, err
	}
	outer := inner
	if s.wrap != nil {
		outer = s.wrap(inner.(base), s.Store)
	}
	if o, ok := outer.(connectListener); ok {
		o.connectedWith(ctx)
	}
	owners.Store(outer, owner{s.Faults(), inner})
	return outer, nil
}

func ownerOf(s driver.Session) owner {
	o, _ := owners.Load(s)
	return o.(owner)
}

// configOf returns a configuration with an in-memory store and every hook. If
// wrap is not nil, it wraps the sessions.
func configOf(wrap func(base, *memdriver.Store) driver.Session) Config {
	open := func(opts ...memdriver.Option) driver.Connector {
		return store{memdriver.New(append(opts, memdriver.WithSessionTimeout(soundTimeout))...), wrap, nil}
	}
	return Config{
		New: func(*testing.T) driver.Connector { return open() },
		NewNearRollOver: func(*testing.T) driver.Connector {
			const limit = 1e18 - 1<<20
			return open(memdriver.WithSequenceStart(limit-40), memdriver.WithSequenceLimit(limit))
		},
		NewLossy: func(*testing.T) (driver.Connector, func()) {
			s := store{memdriver.New(memdriver.WithSessionTimeout(soundTimeout)), wrap, new(grace)}
			return s, s.lose
		},
		SessionTimeout: soundTimeout,
		Parallel:       4,
		Complete:       true,
		Drop: func(_ *testing.T, s driver.Session) {
			if m, ok := s.(expiryListener); ok {
				m.expiring()
			}
			o := ownerOf(s)
			o.Drop(o.inner)
		},
		CutOff: func(_ *testing.T, s driver.Session) func() {
			o := ownerOf(s)
			heal := o.CutOff(o.inner)
			if c, ok := s.(cutListener); ok {
				c.cut(true)
				return func() { heal(); c.cut(false) }
			}
			return heal
		},
		Reset: func(_ *testing.T, s driver.Session) {
			if r, ok := s.(resetListener); ok {
				r.reset()
			}
			o := ownerOf(s)
			o.Reset(o.inner)
		},
		// This does nothing to a correct session, but a broken one may stop
		// seeing notices.
		SilenceNotices: func(_ *testing.T, s driver.Session) {
			if l, ok := s.(silenceListener); ok {
				l.silenced()
			}
		},
		LoseRequest: func(_ *testing.T, s driver.Session, op faults.Op) {
			if l, ok := s.(lossPlayer); ok && l.lose(op, false) {
				return
			}
			o := ownerOf(s)
			o.LoseRequest(o.inner, op)
		},
		LoseReply: func(_ *testing.T, s driver.Session, op faults.Op) {
			if l, ok := s.(lossPlayer); ok && l.lose(op, true) {
				return
			}
			o := ownerOf(s)
			o.LoseReply(o.inner, op)
		},
		HoldRequest: func(_ *testing.T, s driver.Session, op faults.Op) (arrive func()) {
			if h, ok := s.(requestHolder); ok {
				return h.holdRequest(op)
			}
			o := ownerOf(s)
			return o.HoldRequest(o.inner, op)
		},
		DelayReplies: func(_ *testing.T, s driver.Session, d time.Duration) {
			o := ownerOf(s)
			o.DelayReplies(o.inner, d)
		},
		Pause: func(_ *testing.T, s driver.Session, d time.Duration) {
			if p, ok := s.(pauseListener); ok {
				p.paused(d)
			}
			o := ownerOf(s)
			o.Pause(o.inner, d)
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

// running records which cases are running, to check which of them may run in
// parallel. A case is running while it has a store.
type running struct {
	mu    sync.Mutex
	cases map[string]testCase // by the name of their subtest
	most  int
}

func (r *running) begin(t *testing.T) {
	_, name, isCase := strings.Cut(t.Name(), "/")
	if !isCase {
		return // t is not a case, but probes an ability or a hook
	}
	rule, k := caseNamed(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cases[name] = k
	r.most = max(r.most, len(r.cases))
	busy := 0
	for other, k := range r.cases {
		if !k.waits() {
			busy++
		}
		if strings.HasPrefix(other, "rule11/") && len(r.cases) > 1 || rule.alone() && other != name {
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

func caseNamed(name string) (rule, testCase) {
	for _, r := range rules {
		for _, k := range r.cases {
			if r.id()+"/"+k.name == name {
				return r, k
			}
		}
	}
	return rule{}, testCase{}
}

// The cases that wait run beside a busy one.
func TestSoundDriverPasses(t *testing.T) {
	config := configOf(nil)
	config.Abilities = []Ability{AbilityInspect, AbilityAhead, AbilityArmed, AbilityReleased, AbilityCheck}
	r := running{cases: make(map[string]testCase)}
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

type plain struct{ driver.Session }

func (s plain) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	n.Predecessor = nil
	j, err := s.Session.Create(ctx, queue, n)
	return driver.Joined{Place: j.Place}, err
}

func (s plain) Watch(ctx context.Context, queue string, p driver.Place, ahead ...driver.Node) (driver.Watch, error) {
	w, err := s.Session.Watch(ctx, queue, p, ahead...)
	return withoutReleased(w), err
}

func TestPlainDriverPasses(t *testing.T) {
	Run(t, configOf(func(s base, _ *memdriver.Store) driver.Session { return plain{s} }))
}
