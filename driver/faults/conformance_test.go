package faults_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
)

const sessionTimeout = 500 * time.Millisecond

// behindFaults is a memory store behind a Connector that injects faults.
type behindFaults struct {
	*faults.Connector
	store *memdriver.Store
}

type known struct {
	memorySession
	store *memdriver.Store
}

type memorySession interface {
	driver.Session
	driver.Inspector
}

func newBehindFaults(plan faults.Plan, opts ...memdriver.Option) behindFaults {
	store := memdriver.New(append(opts, memdriver.WithSessionTimeout(sessionTimeout))...)
	connect := func(ctx context.Context) (driver.Session, error) {
		s, err := store.Connect(ctx)
		if err != nil {
			return nil, err
		}
		return known{s.(memorySession), store}, nil
	}
	return behindFaults{faults.New(checkable{connectorFunc(connect), store}, plan), store}
}

// checkable is a connector whose Check method calls that of the store. Its
// sessions have the type known.
type checkable struct {
	connectorFunc
	store *memdriver.Store
}

func (c checkable) Check(ctx context.Context) ([]driver.Finding, error) { return c.store.Check(ctx) }

// memory returns the memory store's session behind s, and the handle by which
// that store injects faults into it.
func memory(s driver.Session) (memdriver.Faults, driver.Session) {
	in := faults.Unwrap(s).(known)
	return in.store.Faults(), in.memorySession
}

func configOf(plan faults.Plan) dlocktest.Config {
	return dlocktest.Config{
		New: func(*testing.T) driver.Connector { return newBehindFaults(plan) },
		NewNearRollOver: func(*testing.T) driver.Connector {
			const limit = 1e18 - 1<<20
			return newBehindFaults(plan, memdriver.WithSequenceStart(limit-40), memdriver.WithSequenceLimit(limit))
		},
		SessionTimeout: sessionTimeout,
		Parallel:       4,
		Complete:       true,
		Abilities:      []dlocktest.Ability{dlocktest.AbilityInspect, dlocktest.AbilityAhead, dlocktest.AbilityArmed, dlocktest.AbilityReleased, dlocktest.AbilityCheck},
		Drop: func(_ *testing.T, s driver.Session) {
			m, in := memory(s)
			m.Expire(in)
		},
		CutOff: func(_ *testing.T, s driver.Session) (heal func()) {
			m, in := memory(s)
			return m.CutOff(in)
		},
		LoseRequest: func(_ *testing.T, s driver.Session, op faults.Op) {
			m, in := memory(s)
			m.LoseRequest(in, op)
		},
		LoseReply: func(_ *testing.T, s driver.Session, op faults.Op) {
			m, in := memory(s)
			m.LoseReply(in, op)
		},
		HoldRequest: func(_ *testing.T, s driver.Session, op faults.Op) (arrive func()) {
			m, in := memory(s)
			return m.HoldRequest(in, op)
		},
		Reset: func(_ *testing.T, s driver.Session) {
			m, in := memory(s)
			m.Reset(in)
		},
		SilenceNotices: func(*testing.T, driver.Session) {}, // no-op: replies use the same connection
		DelayReplies: func(_ *testing.T, s driver.Session, d time.Duration) {
			m, in := memory(s)
			m.DelayReplies(in, d)
		},
		Pause: func(_ *testing.T, s driver.Session, d time.Duration) {
			m, in := memory(s)
			m.Pause(in, d)
		},
		RemoveQueue: func(_ *testing.T, c driver.Connector, queue string) {
			c.(behindFaults).store.Faults().RemoveQueue(queue)
		},
		RemoveNode: func(_ *testing.T, c driver.Connector, queue, name string) {
			c.(behindFaults).store.Faults().RemoveNode(queue, name)
		},
		PutNode: func(t *testing.T, c driver.Connector, queue, name string, data []byte) {
			require.NoError(t, c.(behindFaults).store.Faults().PutNode(queue, name, data))
		},
	}
}

// Temporary errors, such as lost replies, are injected only into methods that
// the conformance kit retries.
func TestFaultsKeepTheContract(t *testing.T) {
	for name, plan := range map[string]faults.Plan{
		"no plan": nil,
		// With this seed, the kit still sees every optional ability of
		// the sessions, although Create sometimes leaves out results.
		"slow, early and repeated": faults.Rates{
			Seed: 5, Delay: 0.2, MaxDelay: 2 * time.Millisecond, EndWatches: 0.3, Repeat: 0.3,
			DropAhead: 0.3, DropWatch: 0.3, LoseReleased: 0.3,
		}.Plan,
		"errors that pass": only(faults.Rates{Seed: 2, FailConnects: 0.1, LoseRequests: 0.03, LoseReplies: 0.03},
			faults.OpConnect, faults.OpCreate, faults.OpList, faults.OpWatch, faults.OpWatchQueue, faults.OpCleanUp),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dlocktest.Run(t, configOf(plan))
		})
	}
}

func only(x faults.Rates, ops ...faults.Op) faults.Plan {
	return func(ctx context.Context, r faults.Request) faults.Fault {
		if slices.Contains(ops, r.Op) {
			return x.Plan(ctx, r)
		}
		return faults.Fault{}
	}
}
