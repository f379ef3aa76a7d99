package ensemble

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/internal/history"
	"github.com/dlock-go/dlock/internal/longtest/servers"
	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/zktest"
	"github.com/dlock-go/dlock/zkdriver"
)

var lasting = flag.Duration("histories", 12*time.Second, "how long the faults of a history last")

const historyTimeout = 2 * time.Second

// route gives a session its own proxies, so that a fault can hit it alone.
type route struct {
	proxies []*zktest.Proxy
	servers []string
}

func (r route) now() *zktest.Proxy {
	for _, p := range r.proxies {
		if p.Connections() > 0 {
			return p
		}
	}
	return r.proxies[0]
}

func (r route) each(f func(*zktest.Proxy)) {
	for _, p := range r.proxies {
		f(p)
	}
}

// expire refuses connections, because a client that reconnects in time keeps
// its session.
func (r route) expire() {
	sessions := r.now().Sessions()
	if len(sessions) == 0 || sessions[len(sessions)-1].ID == 0 {
		return
	}
	last := sessions[len(sessions)-1]
	r.each((*zktest.Proxy).Refuse)
	defer r.each((*zktest.Proxy).Heal)
	for i := range 20 * len(r.servers) {
		err := zktest.Expire(r.servers[i%len(r.servers)], last.ID, last.Passwd)
		if err == nil || strings.Contains(err.Error(), "does not know it") { // expired already
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func (r route) cutOff() (heal func()) {
	if rand.IntN(2) == 0 {
		r.proxies = []*zktest.Proxy{r.now()}
	}
	r.each([]func(*zktest.Proxy){
		(*zktest.Proxy).Cut,
		func(p *zktest.Proxy) { p.CutOneWay(testenv.ToServer) },
		func(p *zktest.Proxy) { p.CutOneWay(testenv.ToClient) },
	}[rand.IntN(3)])
	return func() { r.each((*zktest.Proxy).Heal) }
}

// routed is a connector that gives each session its own route.
type routed struct {
	testing.TB
	servers []string
	chroot  string
	params  string    // parameters of the data source name
	routes  *sync.Map // routes of all connectors, by session
	raw     *zk.Conn
}

func (c *routed) Connect(ctx context.Context) (driver.Session, error) {
	to := route{servers: c.servers}
	var hosts []string
	for _, addr := range c.servers {
		p := zktest.NewProxy(c, addr)
		to.proxies, hosts = append(to.proxies, p), append(hosts, p.Addr())
	}
	connector, err := zkdriver.Driver{}.OpenConnector(dsn(c.chroot+"?session_timeout="+historyTimeout.String()+c.params, hosts...))
	if err != nil {
		return nil, err
	}
	s, err := connector.Connect(ctx)
	if err == nil {
		c.routes.Store(s, to)
	}
	return s, err
}

// A failed deletion cannot take effect once the store has answered a later
// write.
func (c *routed) remove(queue string, nodes []string, more ...any) {
	for _, name := range nodes {
		more = append([]any{&zk.DeleteRequest{Path: c.chroot + "/" + queue + "/" + name, Version: -1}}, more...)
	}
	_, err := c.raw.Multi(more...)
	for until := time.Now().Add(bound); err != nil && time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNotEmpty) {
			return
		}
		err = c.raw.Delete(c.chroot+"/no-such-node", -1)
	}
}

func (c *routed) removeQueue(queue string) {
	if names, _, err := c.raw.Children(c.chroot + "/" + queue); err == nil {
		c.remove(queue, names, &zk.DeleteRequest{Path: c.chroot + "/" + queue, Version: -1})
	}
}

var opcodes = map[faults.Op]func(int32) bool{
	faults.OpCreate: zktest.Op(zktest.OpMulti, zktest.OpCreate),
	faults.OpDelete: zktest.Op(zktest.OpMulti, zktest.OpDelete),
	faults.OpList:   zktest.Op(zktest.OpGetChildren2),
}

func makeHistories(t *testing.T, s history.Store, addrs []string, chroot func(testing.TB) string, params string) {
	var routes sync.Map
	of := func(s driver.Session) route {
		to, _ := routes.Load(s)
		return to.(route)
	}
	s.For = *lasting
	s.Config = dlocktest.Config{
		SessionTimeout: historyTimeout,
		New: func(t *testing.T) driver.Connector {
			return &routed{t, addrs, chroot(t), params, &routes, zktest.Dial(t, time.Minute, addrs...)}
		},
		Drop:        func(_ *testing.T, s driver.Session) { of(s).expire() },
		CutOff:      func(_ *testing.T, s driver.Session) (heal func()) { return of(s).cutOff() },
		Reset:       func(_ *testing.T, s driver.Session) { of(s).each((*zktest.Proxy).DropConnections) },
		LoseRequest: func(_ *testing.T, s driver.Session, op faults.Op) { of(s).now().LoseRequest(opcodes[op]) },
		LoseReply:   func(_ *testing.T, s driver.Session, op faults.Op) { of(s).now().LoseReply(opcodes[op]) },
		DelayReplies: func(_ *testing.T, s driver.Session, d time.Duration) {
			of(s).each(func(p *zktest.Proxy) { p.SetDelay(d) })
		},
		RemoveQueue: func(_ *testing.T, c driver.Connector, queue string) { c.(*routed).removeQueue(queue) },
		RemoveNode:  func(_ *testing.T, c driver.Connector, queue, name string) { c.(*routed).remove(queue, []string{name}) },
	}
	history.Run(t, s)
}

// In the two cases about queues, queues in use are removed and recreated.
func TestHistoriesOnZooKeeper(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		options []zktest.Option
		params  string
	}{
		"by default":            {},
		"queues that go":        {[]zktest.Option{zktest.WithContainerCheck(time.Millisecond)}, ""},
		"queues with few nodes": {nil, "&sequence_limit=40"},
		"grants without events": {nil, "&handover=list"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := zktest.Start(t, c.options...)
			makeHistories(t, history.Store{Of: "zookeeper"}, []string{server.Addr()}, server.Chroot, c.params)
		})
	}
}

func TestHistoriesOnAnEnsemble(t *testing.T) {
	t.Parallel()
	e := ensemble(t, 6) // syncLimit of 3s
	n, random := 0, rand.New(rand.NewPCG(rand.Uint64(), 0))
	chroot := func(testing.TB) string { n++; return fmt.Sprint("/h", n) }
	makeHistories(t, history.Store{Of: "zookeeper ensemble", Lagging: true, Outage: func(t *testing.T) (mend func()) {
		all := servers.Faults(false)
		heal, what := all[random.IntN(len(all))].Inject(servers.New(t, e, random))
		t.Log(what)
		return func() {
			heal()
			e.WaitQuorum(t)
		}
	}}, e.Addrs(), chroot, "")
}
