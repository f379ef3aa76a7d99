package history

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
)

const memoryTimeout = 2 * time.Second

// observed remembers the store of each session, because most hooks receive only
// the session.
type observed struct {
	*memdriver.Store
	stores *sync.Map // *memdriver.Store by driver.Session
	spoil  spoiler   // breaks the sessions on purpose; nil for none
}

func (o observed) Connect(ctx context.Context) (driver.Session, error) {
	s, err := o.Store.Connect(ctx)
	if err != nil {
		return nil, err
	}
	of := s
	if o.spoil != nil {
		s = o.spoil(o.Store, s)
	}
	o.stores.Store(s, inMemory{o.Faults(), of})
	return s, nil
}

type inMemory struct {
	memdriver.Faults
	session driver.Session
}

func inMemoryStore(spoil spoiler) Store {
	var stores sync.Map
	of := func(s driver.Session) inMemory {
		m, _ := stores.Load(s)
		return m.(inMemory)
	}
	return Store{Of: "run in memory", Seed: *first, Config: dlocktest.Config{
		New: func(*testing.T) driver.Connector {
			return observed{memdriver.New(memdriver.WithSessionTimeout(memoryTimeout)), &stores, spoil}
		},
		SessionTimeout: memoryTimeout,
		Drop:           func(_ *testing.T, s driver.Session) { m := of(s); m.Drop(m.session) },
		CutOff:         func(_ *testing.T, s driver.Session) (heal func()) { m := of(s); return m.CutOff(m.session) },
		Reset:          func(_ *testing.T, s driver.Session) { m := of(s); m.Reset(m.session) },
		LoseRequest:    func(_ *testing.T, s driver.Session, op faults.Op) { m := of(s); m.LoseRequest(m.session, op) },
		LoseReply:      func(_ *testing.T, s driver.Session, op faults.Op) { m := of(s); m.LoseReply(m.session, op) },
		DelayReplies:   func(_ *testing.T, s driver.Session, d time.Duration) { m := of(s); m.DelayReplies(m.session, d) },
		Pause:          func(_ *testing.T, s driver.Session, d time.Duration) { m := of(s); m.Pause(m.session, d) },
		RemoveQueue:    func(_ *testing.T, c driver.Connector, queue string) { c.(observed).Faults().RemoveQueue(queue) },
		RemoveNode: func(_ *testing.T, c driver.Connector, queue, name string) {
			c.(observed).Faults().RemoveNode(queue, name)
		},
	}}
}

func TestRunMakesHistories(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, outages := inMemoryStore(nil), 0
		s.Outage = func(*testing.T) (mend func()) {
			outages++
			return func() {}
		}
		if s.Histories, s.For = 60, 20*time.Second; testing.Short() {
			s.Histories = 5
		}
		Run(t, s)
		require.Greater(t, outages, s.Histories)
	})
}

// calm returns the store without hooks, so that Run can only close clients.
func (s Store) calm() Store {
	s.Config = dlocktest.Config{New: s.Config.New, SessionTimeout: memoryTimeout}
	return s
}

func TestRunNeedsNoHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { Run(t, inMemoryStore(nil).calm()) })
}
