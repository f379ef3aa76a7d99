package dlocktest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

const faultyTimeout = 500 * time.Millisecond

// behindFaults is a memdriver behind Faults, as the kit's functions need it.
type behindFaults struct {
	*Faults
	store *memdriver.Store
}

// gives makes sessions of a memdriver that implement Releaser, too.
type gives struct {
	*memdriver.Store
	given *releases
}

func (g gives) Connect(ctx context.Context) (driver.Session, error) {
	s, err := g.Store.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return newReleasing(s, g.given), nil
}

// faultyConfig is the configuration of a memdriver behind Faults, every fault included.
func faultyConfig(decide Decide) Config {
	var stores sync.Map // what is in the memdriver, to its store
	inside := func(s driver.Session) (*memdriver.Store, driver.Session) {
		in := Behind(s).(*releasing).full
		st, _ := stores.Load(in)
		return st.(*memdriver.Store), in
	}
	make := func(opts ...memdriver.Option) driver.Connector {
		st := memdriver.New(append(opts, memdriver.WithSessionTimeout(faultyTimeout))...)
		g := gives{st, &releases{nodes: make(map[released]bool)}}
		note := connectorFunc(func(ctx context.Context) (driver.Session, error) {
			s, err := g.Connect(ctx)
			if err == nil {
				stores.Store(s.(*releasing).full, st)
			}
			return s, err
		})
		return behindFaults{NewFaults(note, decide), st}
	}
	return Config{
		New: func(*testing.T) driver.Connector { return make() },
		NewNearRollOver: func(*testing.T) driver.Connector {
			const limit = 1e18 - 1<<20
			return make(memdriver.WithSequenceStart(limit-40), memdriver.WithSequenceLimit(limit))
		},
		SessionTimeout: faultyTimeout,
		Complete:       true,
		Expire: func(_ *testing.T, s driver.Session) {
			st, in := inside(s)
			st.Faults().Expire(in)
		},
		CutOff: func(_ *testing.T, s driver.Session) (heal func()) {
			st, in := inside(s)
			return st.Faults().CutOff(in)
		},
		LoseReply: func(_ *testing.T, s driver.Session, op Op, committed bool) {
			st, in := inside(s)
			st.Faults().LoseReply(in, map[Op]memdriver.Op{
				OpCreate: memdriver.OpCreate, OpDelete: memdriver.OpDelete,
				OpReplace: memdriver.OpReplace, OpRelease: memdriver.OpDelete,
			}[op], committed)
		},
		Pause: func(_ *testing.T, s driver.Session, d time.Duration) {
			st, in := inside(s)
			st.Faults().Pause(in, d)
		},
		RemoveQueue: func(_ *testing.T, c driver.Connector, queue string) {
			c.(behindFaults).store.Faults().RemoveQueue(queue)
		},
		RemoveNode: func(_ *testing.T, c driver.Connector, queue, name string) {
			c.(behindFaults).store.Faults().RemoveNode(queue, name)
		},
		PutNode: func(t *testing.T, c driver.Connector, queue, name string, data []byte) {
			if err := c.(behindFaults).store.Faults().PutNode(queue, name, data); err != nil {
				t.Fatal(err)
			}
		},
	}
}

type connectorFunc func(ctx context.Context) (driver.Session, error)

func (f connectorFunc) Connect(ctx context.Context) (driver.Session, error) { return f(ctx) }

// What Faults makes of a sound driver is a sound driver. Errors that may pass are played where the
// kit repeats a call after one, as recipes do.
func TestFaultsKeepTheContract(t *testing.T) {
	for name, decide := range map[string]Decide{
		"told nothing": nil,
		"no faults":    Rates{}.Decide,
		"slow, early and repeated": Rates{
			Seed: 1, Delay: 0.2, MaxDelay: 2 * time.Millisecond, CloseWatches: 0.3, Repeat: 0.3,
		}.Decide,
		"errors that pass": only(Rates{Seed: 2, FailConnects: 0.1, LoseRequests: 0.03, LoseReplies: 0.03},
			MethodConnect, MethodCreate, MethodList, MethodWatch, MethodCleanUp),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			Run(t, faultyConfig(decide))
		})
	}
}

// only plays faults on some methods.
func only(x Rates, methods ...string) Decide {
	return func(ctx context.Context, r Request) Fault {
		if slices.Contains(methods, r.Method) {
			return x.Decide(ctx, r)
		}
		return Fault{}
	}
}
