package zkdriver

import (
	"context"
	"errors"
	"path"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/internal/leasehook"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/zktest"
)

// store is a connector whose sessions each have their own proxy.
type store struct {
	t      *testing.T
	server *zktest.Server
	chroot string
	params string
	all    *sync.Map // proxies of all stores, by session

	mu      sync.Mutex
	proxies map[driver.Session]*zktest.Proxy
}

func (s *store) Check(ctx context.Context) ([]driver.Finding, error) {
	c, err := Driver{}.OpenConnector("zk://" + s.server.Addr() + s.chroot + "?" + s.params)
	if err != nil {
		return nil, err
	}
	return c.(driver.Checker).Check(ctx)
}

func (s *store) stored(queue, name string) string {
	settings, err := parseDSN("h?" + s.params)
	require.NoError(s.t, err)
	return s.chroot + "/" + queue + "/" + settings.layout.stored(name)
}

func (s *store) Connect(ctx context.Context) (driver.Session, error) {
	p := s.freeProxy()
	c, err := Driver{}.OpenConnector("zk://" + p.Addr() + s.chroot + "?" + s.params)
	if err != nil {
		return nil, err
	}
	if set := c.(*connector).settings; set.layout != nil { // let the kit test semaphores too
		anyKind := *set.layout
		anyKind.lacks = nil
		set.layout = &anyKind
	}
	made, err := c.Connect(ctx)
	if err == nil {
		s.mu.Lock()
		s.proxies[made] = p
		s.mu.Unlock()
		s.all.Store(made, p)
	}
	return made, err
}

// freeProxy reuses a closed session's proxy: some tests count goroutines.
func (s *store) freeProxy() *zktest.Proxy {
	s.mu.Lock()
	defer s.mu.Unlock()
	for old, p := range s.proxies {
		select {
		case <-old.(*session).conn.Finished():
			delete(s.proxies, old)
			p.DropConnections()
			p.Heal()
			p.SetDelay(0)
			return p
		default:
		}
	}
	return zktest.NewProxy(s.t, s.server.Addr())
}

func TestConformance(t *testing.T) { conforms(t, "") }

func TestConformanceWithNamesOfOtherLibraries(t *testing.T) {
	if testing.Short() {
		t.Skip("runs the kit again")
	}
	for _, names := range []string{"curator", "kazoo"} {
		t.Run(names, func(t *testing.T) { conforms(t, "&names="+names) })
	}
}

func conforms(t *testing.T, params string) {
	server := zktest.Shared(t)
	var proxies, slow sync.Map // by session; slow marks delayed replies
	proxy := func(s driver.Session) *zktest.Proxy {
		p, _ := proxies.Load(s)
		return p.(*zktest.Proxy)
	}
	open := func(t *testing.T, more string) driver.Connector {
		return &store{t: t, server: server, chroot: server.Chroot(t), params: "session_timeout=1500ms" + more + params,
			all: &proxies, proxies: make(map[driver.Session]*zktest.Proxy)}
	}
	const timeout = 1500 * time.Millisecond
	dlocktest.Run(t, dlocktest.Config{
		SessionTimeout:  timeout,
		Parallel:        4,
		Complete:        true,
		Abilities:       []dlocktest.Ability{dlocktest.AbilityInspect, dlocktest.AbilityAhead, dlocktest.AbilityReleased, dlocktest.AbilityCheck},
		New:             func(t *testing.T) driver.Connector { return open(t, "") },
		NewNearRollOver: func(t *testing.T) driver.Connector { return open(t, "&sequence_limit=40") },
		Drop: func(t *testing.T, s driver.Session) {
			z, p := s.(*session), proxy(s)
			p.Refuse() // otherwise the session would reconnect before it expires
			defer p.Heal()
			require.NoError(t, zktest.Expire(server.Addr(), z.conn.SessionID(), nil))
		},
		CutOff: func(t *testing.T, s driver.Session) func() {
			p := proxy(s)
			if _, slow := slow.LoadAndDelete(s); slow {
				p.CutOneWay(testenv.ToServer) // replies in flight still arrive
			} else {
				p.Cut()
			}
			t.Cleanup(p.Heal)
			return p.Heal
		},
		Reset: func(t *testing.T, s driver.Session) { proxy(s).DropConnections() },
		// Watch events share a stream with replies, so a network cannot lose
		// the events alone.
		SilenceNotices: func(*testing.T, driver.Session) {},
		LoseRequest:    func(t *testing.T, s driver.Session, op faults.Op) { proxy(s).LoseRequest(opcodes(op)) },
		LoseReply:      func(t *testing.T, s driver.Session, op faults.Op) { proxy(s).LoseReply(opcodes(op)) },
		HoldRequest: func(t *testing.T, s driver.Session, op faults.Op) (arrive func()) {
			// The server drops requests of old connections, so holding means losing.
			proxy(s).LoseRequest(opcodes(op))
			return func() {}
		},
		DelayReplies: func(t *testing.T, s driver.Session, d time.Duration) {
			slow.Store(s, true)
			proxy(s).SetDelayOneWay(testenv.ToClient, d)
		},
		Pause: func(_ *testing.T, s driver.Session, d time.Duration) { leasehook.Skew(s.(*session).conn.Lease(), d) },
		RemoveQueue: func(t *testing.T, c driver.Connector, queue string) {
			removeAll(t, server.Raw(t), c.(*store).chroot+"/"+queue)
		},
		RemoveNode: func(t *testing.T, c driver.Connector, queue, name string) {
			require.NoError(t, server.Raw(t).Delete(c.(*store).stored(queue, name), -1))
		},
		PutNode: func(t *testing.T, c driver.Connector, queue, name string, data []byte) {
			conn := server.Raw(t)
			full := c.(*store).stored(queue, name)
			putParents(t, conn, path.Dir(full))
			_, err := conn.Create(full, data, 0, zk.WorldACL(zk.PermAll))
			require.NoError(t, err)
		},
	})
}

func opcodes(op faults.Op) func(opcode int32) bool {
	switch op {
	case faults.OpList:
		return zktest.Op(zktest.OpGetChildren2)
	case faults.OpDelete: // a Multi if the cause is Released
		return func(opcode int32) bool { return opcode == zktest.OpDelete || opcode == zktest.OpMulti }
	}
	return zktest.Op(zktest.OpMulti)
}

func removeAll(t *testing.T, conn *zk.Conn, root string) {
	t.Helper()
	for range 100 {
		names, _, err := conn.Children(root)
		if errors.Is(err, zk.ErrNoNode) {
			return
		}
		require.NoError(t, err)
		for _, name := range names {
			removeAll(t, conn, root+"/"+name)
		}
		if err := conn.Delete(root, -1); err == nil || errors.Is(err, zk.ErrNoNode) {
			return
		}
	}
	t.Fatalf("%s does not empty", root)
}

func putParents(t *testing.T, conn *zk.Conn, p string) {
	t.Helper()
	made := ""
	for segment := range strings.SplitSeq(strings.TrimPrefix(p, "/"), "/") {
		made += "/" + segment
		if _, err := conn.Create(made, nil, 0, zk.WorldACL(zk.PermAll)); !errors.Is(err, zk.ErrNodeExists) {
			require.NoError(t, err)
		}
	}
}
