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

type behindFaults struct {
	*faults.Connector
	store *memdriver.Store
}

func newBehindFaults(plan faults.Plan, opts ...memdriver.Option) behindFaults {
	store := memdriver.New(append(opts, memdriver.WithSessionTimeout(sessionTimeout))...)
	return behindFaults{faults.New(memory{store}, plan), store}
}

type memory struct{ *memdriver.Store }

type known struct {
	memorySession
	memdriver.Faults
}

type memorySession interface {
	driver.Session
	driver.Inspector
}

func (m memory) Connect(ctx context.Context) (driver.Session, error) {
	s, err := m.Store.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return known{s.(memorySession), m.Faults()}, nil
}

func behind(s driver.Session) known { return faults.Unwrap(s).(known) }

func (k known) session() driver.Session { return k.memorySession }

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
		Drop:           func(_ *testing.T, s driver.Session) { behind(s).Expire(behind(s).session()) },
		CutOff:         func(_ *testing.T, s driver.Session) (heal func()) { return behind(s).CutOff(behind(s).session()) },
		LoseRequest:    func(_ *testing.T, s driver.Session, op faults.Op) { behind(s).LoseRequest(behind(s).session(), op) },
		LoseReply:      func(_ *testing.T, s driver.Session, op faults.Op) { behind(s).LoseReply(behind(s).session(), op) },
		Reset:          func(_ *testing.T, s driver.Session) { behind(s).Reset(behind(s).session()) },
		SilenceNotices: func(*testing.T, driver.Session) {}, // no-op: watch events and replies share a connection
		HoldRequest: func(_ *testing.T, s driver.Session, op faults.Op) (arrive func()) {
			return behind(s).HoldRequest(behind(s).session(), op)
		},
		DelayReplies: func(_ *testing.T, s driver.Session, d time.Duration) {
			behind(s).DelayReplies(behind(s).session(), d)
		},
		Pause: func(_ *testing.T, s driver.Session, d time.Duration) { behind(s).Pause(behind(s).session(), d) },
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

// Temporary errors are injected only into methods that the conformance kit
// retries.
func TestFaultsKeepTheContract(t *testing.T) {
	for name, plan := range map[string]faults.Plan{
		"no plan": nil,
		// With this seed, the conformance kit sees Create with and without each
		// optional result.
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
