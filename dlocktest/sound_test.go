package dlocktest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

// soundTimeout is short, because the kit waits for some fifteen of them.
const soundTimeout = 300 * time.Millisecond

// A store is a memdriver whose sessions may be wrapped by a saboteur.
type store struct {
	*memdriver.Store
	wrap func(driver.Session, *memdriver.Store) driver.Session
}

var owners sync.Map // driver.Session, wrapped, to owner

type owner struct {
	store *memdriver.Store
	inner driver.Session
}

func (s store) Connect(ctx context.Context) (driver.Session, error) {
	inner, err := s.Store.Connect(ctx)
	if err != nil {
		return nil, err
	}
	outer := inner
	if s.wrap != nil {
		outer = s.wrap(inner, s.Store)
	}
	if o, ok := outer.(begun); ok {
		o.connectedWith(ctx)
	}
	owners.Store(outer, owner{s.Store, inner})
	return outer, nil
}

func ownerOf(s driver.Session) owner {
	o, _ := owners.Load(s)
	return o.(owner)
}

// configOf is the configuration of a memdriver, every fault included, with sabotaged sessions
// if wrap is not nil.
func configOf(wrap func(driver.Session, *memdriver.Store) driver.Session) Config {
	make := func(opts ...memdriver.Option) driver.Connector {
		return store{memdriver.New(append(opts, memdriver.WithSessionTimeout(soundTimeout))...), wrap}
	}
	return Config{
		New: func(*testing.T) driver.Connector { return make() },
		NewNearRollOver: func(*testing.T) driver.Connector {
			const limit = 1e18 - 1<<20
			return make(memdriver.WithSequenceStart(limit-40), memdriver.WithSequenceLimit(limit))
		},
		SessionTimeout: soundTimeout,
		Complete:       true,
		Expire: func(_ *testing.T, s driver.Session) {
			o := ownerOf(s)
			if m, ok := s.(mortal); ok {
				m.expiring()
			}
			o.store.Faults().Expire(o.inner)
		},
		CutOff: func(_ *testing.T, s driver.Session) func() {
			o := ownerOf(s)
			heal := o.store.Faults().CutOff(o.inner)
			if c, ok := s.(cuttable); ok {
				c.cut(true)
				return func() { heal(); c.cut(false) }
			}
			return heal
		},
		LoseReply: func(_ *testing.T, s driver.Session, op Op, committed bool) {
			if l, ok := s.(loser); ok && l.loseReply(op, committed) {
				return
			}
			o := ownerOf(s)
			o.store.Faults().LoseReply(o.inner, map[Op]memdriver.Op{
				OpCreate: memdriver.OpCreate, OpDelete: memdriver.OpDelete,
				OpReplace: memdriver.OpReplace, OpRelease: memdriver.OpDelete,
			}[op], committed)
		},
		Pause: func(_ *testing.T, s driver.Session, d time.Duration) {
			o := ownerOf(s)
			o.store.Faults().Pause(o.inner, d)
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

func TestSoundDriverPasses(t *testing.T) { Run(t, configOf(nil)) }
