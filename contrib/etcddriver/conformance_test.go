package etcddriver

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/testenv"
)

type conformance struct {
	server *etcdtest.Server
	// lenient ignores failures to inject a fault, because the target may be
	// gone.
	lenient bool
	// existing opens the store with NewConnector and an etcd client.
	existing bool

	slow   sync.Map // set of sessions whose replies are delayed
	mu     sync.Mutex
	stores []*store
}

func (c *conformance) open(t *testing.T) driver.Connector {
	s := newStore(t, c.server, "session_timeout=1s")
	s.existing = c.existing
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stores = append(c.stores, s)
	return s
}

func (c *conformance) link(session driver.Session) *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.stores {
		if l := s.link(session); l != nil {
			return l
		}
	}
	return nil
}

func TestConformance(t *testing.T) {
	c := conformance{server: etcdtest.Shared(t)}
	dlocktest.Run(t, c.config(t))
}

// A threshold of 0 makes every waiter watch as if far back in the queue.
func TestConformanceFarBehind(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the kit again")
	}
	waitFarBehind(t, 0)
	c := conformance{server: etcdtest.Shared(t)}
	dlocktest.Run(t, c.config(t))
}

func TestConformanceOfAnExistingClient(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the kit again")
	}
	c := conformance{server: etcdtest.Shared(t), existing: true}
	dlocktest.Run(t, c.config(t))
}

func (c *conformance) config(t *testing.T) dlocktest.Config {
	admin := raw(t, c.server)
	_, err := admin.Get(within(t), "warm-up") // connect before goroutines are counted
	require.NoError(t, err)
	must := func(t *testing.T, err error) {
		if !c.lenient {
			require.NoError(t, err)
		}
	}
	return dlocktest.Config{
		SessionTimeout:  time.Second,
		Parallel:        4,
		Complete:        true,
		Abilities:       []dlocktest.Ability{dlocktest.AbilityInspect, dlocktest.AbilityAhead, dlocktest.AbilityArmed, dlocktest.AbilityReleased, dlocktest.AbilityCheck},
		New:             c.open,
		NewNearRollOver: c.open, // 63-bit revisions never roll over
		Drop: func(t *testing.T, s driver.Session) {
			_, err := admin.Revoke(within(t), inside(s).b.id)
			must(t, err)
		},
		CutOff: func(t *testing.T, s driver.Session) func() {
			p := c.link(s).proxy
			if _, slow := c.slow.LoadAndDelete(s); slow {
				p.CutOneWay(testenv.ToServer) // replies that are in flight still arrive
			} else {
				p.Cut()
			}
			t.Cleanup(p.Heal)
			return p.Heal
		},
		Reset:          func(t *testing.T, s driver.Session) { c.link(s).proxy.DropConnections() },
		SilenceNotices: func(t *testing.T, s driver.Session) { c.link(s).watches.silence() },
		LoseRequest:    func(t *testing.T, s driver.Session, op faults.Op) { c.link(s).loseRequest(op) },
		LoseReply:      func(t *testing.T, s driver.Session, op faults.Op) { c.link(s).loseReply(op) },
		HoldRequest: func(t *testing.T, s driver.Session, op faults.Op) func() {
			return c.link(s).holdRequest(t, c.server, op)
		},
		DelayReplies: func(t *testing.T, s driver.Session, d time.Duration) {
			c.slow.Store(s, true)
			c.link(s).proxy.SetDelayOneWay(testenv.ToClient, d)
		},
		Pause: func(t *testing.T, s driver.Session, d time.Duration) {
			dlocktest.SkewLease(s.(*session.Session).Lease(), d)
		},
		RemoveQueue: func(t *testing.T, c driver.Connector, queue string) {
			_, err := admin.Delete(within(t), c.(*store).prefix+"/"+queue+"//", clientv3.WithPrefix())
			must(t, err)
		},
		RemoveNode: func(t *testing.T, c driver.Connector, queue, name string) {
			must(t, removeNode(within(t), admin, c.(*store).prefix+"/"+queue+"//", name))
		},
		PutNode: func(t *testing.T, c driver.Connector, queue, name string, data []byte) {
			_, err := admin.Put(within(t), c.(*store).prefix+"/"+queue+"//"+name, string(data))
			must(t, err)
		},
	}
}

func removeNode(ctx context.Context, admin *clientv3.Client, queueKeys, name string) error {
	reply, err := admin.Get(ctx, queueKeys, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	for _, m := range parseQueue(queueKeys, reply.Kvs) {
		if m.Name == name {
			_, err := admin.Delete(ctx, queueKeys+m.id)
			return err
		}
	}
	return errors.New("the queue has no such node")
}
