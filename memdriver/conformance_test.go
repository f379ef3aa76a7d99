package memdriver_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
)

const conformanceTimeout = time.Second

func TestConformance(t *testing.T) {
	dlocktest.Run(t, dlocktest.Config{
		New: func(*testing.T) driver.Connector {
			return newRecorder(memdriver.WithSessionTimeout(conformanceTimeout))
		},
		NewNearRollOver: func(*testing.T) driver.Connector {
			const limit = 1e18 - 1<<20
			return newRecorder(
				memdriver.WithSessionTimeout(conformanceTimeout),
				memdriver.WithSequenceStart(limit-50), memdriver.WithSequenceLimit(limit))
		},
		SessionTimeout: conformanceTimeout,
		Parallel:       4,
		Complete:       true,
		Abilities:      []dlocktest.Ability{dlocktest.AbilityInspect, dlocktest.AbilityAhead, dlocktest.AbilityArmed, dlocktest.AbilityReleased, dlocktest.AbilityCheck},

		Drop:        func(_ *testing.T, s driver.Session) { storeOf(s).Faults().Drop(s) },
		CutOff:      func(_ *testing.T, s driver.Session) (heal func()) { return storeOf(s).Faults().CutOff(s) },
		LoseRequest: func(_ *testing.T, s driver.Session, op faults.Op) { storeOf(s).Faults().LoseRequest(s, op) },
		LoseReply:   func(_ *testing.T, s driver.Session, op faults.Op) { storeOf(s).Faults().LoseReply(s, op) },
		HoldRequest: func(_ *testing.T, s driver.Session, op faults.Op) (arrive func()) {
			return storeOf(s).Faults().HoldRequest(s, op)
		},
		Reset: func(_ *testing.T, s driver.Session) { storeOf(s).Faults().Reset(s) },
		// A session has a single connection: a network cannot lose notices
		// alone.
		SilenceNotices: func(*testing.T, driver.Session) {},
		DelayReplies: func(_ *testing.T, s driver.Session, d time.Duration) {
			storeOf(s).Faults().DelayReplies(s, d)
		},
		Pause: func(_ *testing.T, s driver.Session, d time.Duration) { storeOf(s).Faults().Pause(s, d) },
		RemoveQueue: func(_ *testing.T, c driver.Connector, queue string) {
			c.(recorder).Faults().RemoveQueue(queue)
		},
		RemoveNode: func(_ *testing.T, c driver.Connector, queue, name string) {
			c.(recorder).Faults().RemoveNode(queue, name)
		},
		PutNode: func(t *testing.T, c driver.Connector, queue, name string, data []byte) {
			require.NoError(t, c.(recorder).Faults().PutNode(queue, name, data))
		},
	})
}

// recorder remembers each session's store, because most Config functions
// receive only the session.
type recorder struct {
	*memdriver.Store
}

var stores sync.Map // *memdriver.Store by driver.Session

func newRecorder(opts ...memdriver.Option) recorder {
	return recorder{memdriver.New(opts...)}
}

func (r recorder) Connect(ctx context.Context) (driver.Session, error) {
	s, err := r.Store.Connect(ctx)
	if err == nil {
		stores.Store(s, r.Store)
	}
	return s, err
}

func storeOf(s driver.Session) *memdriver.Store {
	st, _ := stores.Load(s)
	return st.(*memdriver.Store)
}
