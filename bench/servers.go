package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
	"github.com/dlock-go/dlock/internal/zktest"
)

// counters holds the traffic between a server and its clients since its start.
type counters struct {
	requests, packets, bytes float64 // packets and bytes in both directions
	nodes                    float64 // contenders' nodes now in the store
}

func (c counters) minus(d counters) counters {
	return counters{c.requests - d.requests, c.packets - d.packets, c.bytes - d.bytes, c.nodes}
}

// zooKeeper has the settings of a default installation, such as a tick of 2 s
// and a disk sync before each answer to a write.
type zooKeeper struct {
	testingTB
	members []*zktest.Server
	address string   // for clients: host:port, or several separated by commas
	cost    counters // what each read adds to the counters
}

func startZooKeeper(s setup) (_ *zooKeeper, err error) {
	z := &zooKeeper{}
	tb := &z.testingTB
	defer tb.recover(&err)
	options := []zktest.Option{
		zktest.WithConfig(map[string]string{"tickTime": "2000", "minSessionTimeout": "4000"}),
		zktest.WithContainerCheck(time.Minute), // the default of ZooKeeper
		zktest.WithJVM("-XX:TieredStopAtLevel=4", "-Xmx1000m", "-XX:-UseSerialGC"),
	}
	if s.members == 1 {
		z.members = append(z.members, zktest.Start(tb, options...))
	} else {
		options = append(options, zktest.WithConfig(map[string]string{"initLimit": "10", "syncLimit": "5"})) // as in ZooKeeper's sample
		z.members = zktest.StartEnsemble(tb, s.members, options...).Servers
	}
	z.address = strings.Join(mapped(z.members, (*zktest.Server).Addr), ",")
	if s.delay > 0 {
		proxy := testenv.NewProxy(tb, z.address, nil)
		proxy.SetDelay(s.delay)
		z.address = proxy.Addr()
	}
	for range 3 { // the first reads may cost more
		first := z.mntr()
		z.cost = z.mntr().minus(first)
	}
	return z, nil
}

func (z *zooKeeper) read() (c counters, err error) {
	defer (&testingTB{}).recover(&err)
	return z.mntr(), nil
}

// mntr adds up the members' traffic, including the mntr request itself. The
// number of nodes is the smallest, because a member may lag behind.
func (z *zooKeeper) mntr() (sum counters) {
	for i, s := range z.members {
		m := s.Mntr()
		sum.requests += float64(m["zk_packets_received"])
		sum.packets += float64(m["zk_packets_received"] + m["zk_packets_sent"])
		sum.bytes += float64(m["zk_bytes_received_count"] + m["zk_response_bytes"])
		if nodes := float64(m["zk_ephemerals_count"]); i == 0 || nodes < sum.nodes {
			sum.nodes = nodes
		}
	}
	return sum
}

// testingTB is a testing.TB for zktest outside a test. Its Fatal panics.
type testingTB struct {
	testing.TB // nil, because only the methods below are called
	cleanUps   []func()
}

func (*testingTB) Helper()                      {}
func (*testingTB) Fatal(args ...any)            { panic(fmt.Sprint(args...)) }
func (*testingTB) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
func (*testingTB) Skipf(f string, args ...any)  { panic(fmt.Sprintf(f, args...)) }
func (t *testingTB) Cleanup(f func())           { t.cleanUps = append(t.cleanUps, f) }

// recover turns the panic of Fatal into an error, and stops what was started.
// It must be deferred.
func (t *testingTB) recover(err *error) {
	if fault := recover(); fault != nil {
		t.stop()
		*err = fmt.Errorf("bench: %v", fault)
	}
}

func (t *testingTB) stop() {
	for _, f := range slices.Backward(t.cleanUps) {
		f()
	}
	t.cleanUps = nil
}
