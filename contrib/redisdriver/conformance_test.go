package redisdriver

import (
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/driver/session"
	"github.com/dlock-go/dlock/internal/history"
	"github.com/dlock-go/dlock/internal/plant"
	"github.com/dlock-go/dlock/internal/redistest"
	"github.com/dlock-go/dlock/internal/testenv"
)

type conformance struct {
	server *redistest.Server
	params string // additional parameters for data source names
	// existing opens the store with NewConnector and a go-redis client.
	existing bool
	// lenient ignores failures to inject a fault, because the target may be
	// gone.
	lenient bool

	slow   sync.Map // set of sessions whose replies are delayed
	mu     sync.Mutex
	stores []*store
}

const conformanceTimeout = time.Second

func (c *conformance) open(t *testing.T) driver.Connector {
	s := newStore(t, c.server, "session_timeout="+conformanceTimeout.String()+c.params)
	s.keepProxies, s.existing = c.lenient, c.existing
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stores = append(c.stores, s)
	return s
}

func (c *conformance) of(session driver.Session) (*store, *redistest.Proxy) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.stores {
		if p := s.proxy(session); p != nil {
			return s, p
		}
	}
	return nil, nil
}

func TestConformance(t *testing.T) {
	config := (&conformance{server: redistest.Shared(t)}).config()
	config.Timeout = plant.CaseTimeout()
	dlocktest.Run(t, config)
}

const alone = "DLOCK_REDIS_ALONE"

// Each variant needs its own process, because the tests count goroutines.
func TestConformanceOfVariants(t *testing.T) {
	for name, c := range map[string]*conformance{"version3": {params: "&protocol=3"}, "client": {existing: true}} {
		if os.Getenv(alone) == name {
			c.server = redistest.Shared(t)
			dlocktest.Run(t, c.config())
			return
		}
	}
	if testing.Short() {
		t.Skip("runs the kit again")
	}
	t.Parallel()
	redistest.Shared(t) // skips the test if Redis is not installed
	for _, name := range []string{"version3", "client"} {
		cases := "^TestConformanceOfVariants$/^(rule0[1-7]|rule1[0-3]|read|walk|describe)$"
		kit := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+cases, "-test.timeout=5m", "-test.v")
		kit.Env = append(os.Environ(), alone+"="+name)
		out, err := kit.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "rule 13 (released)                checked (", "%s", out)
	}
}

func (c *conformance) config() dlocktest.Config {
	proxy := func(s driver.Session) *redistest.Proxy {
		_, p := c.of(s)
		return p
	}
	lenient := c.lenient
	return dlocktest.Config{
		SessionTimeout: conformanceTimeout,
		Parallel:       4,
		Complete:       true,
		Abilities:      []dlocktest.Ability{dlocktest.AbilityInspect, dlocktest.AbilityAhead, dlocktest.AbilityArmed, dlocktest.AbilityReleased, dlocktest.AbilityCheck},
		New:            c.open,
		// Any store will do: sequences don't roll over before the year 2255.
		NewNearRollOver: c.open,
		NewLossy: func(t *testing.T) (driver.Connector, func()) {
			s := c.open(t).(*store)
			s.graced = true
			return s, func() {
				for _, key := range s.server.Do("KEYS", s.key("*")).([]any) {
					s.server.Do("DEL", key.(string))
				}
			}
		},
		Drop: func(t *testing.T, s driver.Session) {
			st, _ := c.of(s)
			st.drop(t, inside(s).id)
		},
		CutOff: func(t *testing.T, s driver.Session) (heal func()) {
			p := proxy(s)
			if _, slow := c.slow.LoadAndDelete(s); slow {
				p.CutOneWay(testenv.ToServer) // replies that are in flight still arrive
			} else {
				p.Cut()
			}
			t.Cleanup(p.Heal)
			return p.Heal
		},
		Reset:          func(_ *testing.T, s driver.Session) { proxy(s).DropConnections() },
		SilenceNotices: func(_ *testing.T, s driver.Session) { proxy(s).SilenceSubscriptions() },
		LoseRequest:    func(_ *testing.T, s driver.Session, op faults.Op) { proxy(s).LoseRequest(is(op)) },
		LoseReply:      func(_ *testing.T, s driver.Session, op faults.Op) { proxy(s).LoseReply(is(op)) },
		HoldRequest: func(_ *testing.T, s driver.Session, op faults.Op) (arrive func()) {
			return proxy(s).HoldRequest(is(op))
		},
		DelayReplies: func(_ *testing.T, s driver.Session, d time.Duration) {
			c.slow.Store(s, true)
			proxy(s).SetDelayOneWay(testenv.ToClient, d)
		},
		Pause: func(_ *testing.T, s driver.Session, d time.Duration) {
			dlocktest.SkewLease(s.(*session.Session).Lease(), d)
		},
		RemoveQueue: func(t *testing.T, c driver.Connector, queue string) {
			st := c.(*store)
			st.server.Do("DEL", st.key("q:"+queue))
		},
		RemoveNode: func(t *testing.T, c driver.Connector, queue, name string) {
			removed := c.(*store).eval(t, "return redis.call('ZREM', P .. 'q:' .. ARGV[2], find(ARGV[2], ARGV[3]) or '')", "", queue, name)
			if !lenient {
				require.EqualValues(t, 1, removed)
			}
		},
		PutNode: func(t *testing.T, c driver.Connector, queue, name string, data []byte) {
			st := c.(*store)
			_, seq, _ := driver.ParseName(name)
			st.server.Do("ZADD", st.key("q:"+queue), strconv.FormatInt(seq, 10), name+"///"+string(data))
		},
	}
}

func TestHistoriesAreLinearizable(t *testing.T) {
	if testing.Short() {
		t.Skip("records histories")
	}
	t.Parallel()
	c := conformance{server: redistest.Start(t, redistest.Durable()), lenient: true}
	history.Run(t, history.Store{
		Of:     "redis",
		Config: c.config(),
		Outage: func(*testing.T) (mend func()) {
			c.server.Kill()
			return c.server.Restart
		},
		Histories: 1,
	})
}
