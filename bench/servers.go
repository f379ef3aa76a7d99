package main

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/zktest"
)

const (
	zookeeper = "ZooKeeper"
	etcd      = "etcd"
)

// server is the store under test: a single server or an ensemble.
type server interface {
	// addr returns host:port for clients, or several separated by commas.
	addr() string
	read() (counters, error)
	// readCost returns what each call of read adds to the counters.
	readCost() counters
	stop()
}

// counters holds a server's statistics since its start, and its current number
// of nodes and watchers.
type counters struct {
	received, sent       float64 // packets
	bytesIn, bytesOut    float64
	contenders, watchers float64 // in the store now
}

func (c counters) minus(d counters) counters {
	return counters{
		received: c.received - d.received, sent: c.sent - d.sent,
		bytesIn: c.bytesIn - d.bytesIn, bytesOut: c.bytesOut - d.bytesOut,
		contenders: c.contenders, watchers: c.watchers,
	}
}

// zooKeeper is a server with the settings of a default installation: a tick of
// 2 s, a disk sync before each answer to a write, a heap of 1,000 MB, and the
// JVM's default compilers and garbage collector.
type zooKeeper struct {
	*zktest.Server
	tb   *testingTB
	cost counters
}

// startZooKeeper starts a server and waits until it answers clients. config is
// added to the server's configuration file.
func startZooKeeper(config map[string]string) (_ *zooKeeper, err error) {
	tb := &testingTB{}
	defer tb.recover(&err)
	lines := map[string]string{"tickTime": "2000", "minSessionTimeout": "4000"}
	maps.Copy(lines, config)
	s := &zooKeeper{tb: tb}
	s.Server = zktest.Start(tb,
		zktest.WithConfig(lines),
		zktest.WithContainerCheck(time.Minute), // the default of ZooKeeper
		zktest.WithJVM("-XX:TieredStopAtLevel=4", "-Xmx1000m", "-XX:-UseSerialGC"))
	if err := s.measureReadCost(); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// measureReadCost determines what one call of read adds to the counters. It
// measures several times and keeps the last result, because the first reads may
// cost more.
func (s *zooKeeper) measureReadCost() error {
	for range 3 {
		first, err := s.read()
		if err != nil {
			return err
		}
		second, err := s.read()
		if err != nil {
			return err
		}
		s.cost = second.minus(first)
		s.cost.contenders, s.cost.watchers = 0, 0
	}
	return nil
}

func (s *zooKeeper) addr() string       { return s.Addr() }
func (s *zooKeeper) readCost() counters { return s.cost }
func (s *zooKeeper) stop()              { s.tb.cleanUp() }

// read sends the command mntr. The server counts each mntr request before it
// answers, so the difference between two reads includes one of them.
func (s *zooKeeper) read() (c counters, err error) {
	defer (&testingTB{}).recover(&err)
	m := s.Mntr()
	return counters{
		received: float64(m["zk_packets_received"]), sent: float64(m["zk_packets_sent"]),
		bytesIn: float64(m["zk_bytes_received_count"]), bytesOut: float64(m["zk_response_bytes"]),
		contenders: float64(m["zk_ephemerals_count"]), watchers: float64(m["zk_watch_count"]),
	}, nil
}

// testingTB implements testing.TB, so that zktest and etcdtest can be used
// outside a test. Its Fatal panics.
type testingTB struct {
	testing.TB // nil, because only the methods below are called
	cleanUps   []func()
}

func (*testingTB) Helper()                      {}
func (*testingTB) Fatal(args ...any)            { panic(fmt.Sprint(args...)) }
func (*testingTB) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
func (*testingTB) Skipf(f string, args ...any)  { panic(fmt.Sprintf(f, args...)) }
func (t *testingTB) Cleanup(f func())           { t.cleanUps = append(t.cleanUps, f) }

// recover turns the panic of Fatal into an error. It must be deferred around
// calls that may end in Fatal.
func (t *testingTB) recover(err *error) {
	if fault := recover(); fault != nil {
		t.cleanUp()
		*err = fmt.Errorf("bench: %v", fault)
	}
}

func (t *testingTB) cleanUp() {
	for _, f := range t.cleanUps {
		f()
	}
	t.cleanUps = nil
}
