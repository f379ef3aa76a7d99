package main

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/zktest"
)

// The names of the stores.
const (
	zookeeper = "ZooKeeper"
	etcd      = "etcd"
)

// server is one server, or an ensemble, that competitors use.
type server interface {
	// addr returns host:port for clients, or several of them separated by commas.
	addr() string
	version() string
	read() (counters, error)
	// readCost returns what one call of read adds to the counters.
	readCost() counters
	stop()
}

// counters are what a server has counted since it started, and what it holds now.
type counters struct {
	received, sent       float64 // numbers of packets
	bytesIn, bytesOut    float64
	contenders, watchers float64 // how many contenders and watches the store has at the moment of the read
}

// minus returns what was counted since d was read.
func (c counters) minus(d counters) counters {
	return counters{
		received: c.received - d.received, sent: c.sent - d.sent,
		bytesIn: c.bytesIn - d.bytesIn, bytesOut: c.bytesOut - d.bytesOut,
		contenders: c.contenders, watchers: c.watchers,
	}
}

// zooKeeper is a server with the settings of a new installation: a tick of 2 s, a sync
// of the disk before each answer to a write, a heap of 1,000 MB, and the JVM's own
// choice of compilers and garbage collector.
type zooKeeper struct {
	*zktest.Server
	tb   *testingTB
	cost counters
}

// startZooKeeper starts a server and returns once it answers clients. config holds
// more lines of its configuration file.
func startZooKeeper(config map[string]string) (_ *zooKeeper, err error) {
	tb := &testingTB{}
	defer func() {
		if fault := recover(); fault != nil {
			tb.cleanUp()
			err = fmt.Errorf("bench: %v", fault)
		}
	}()
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

// measureReadCost sets cost to what one call of read adds to the counters. It
// measures several times and keeps the last result, because the cost of the
// first reads may differ from that of later reads.
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

func (s *zooKeeper) version() string {
	for line := range strings.Lines(s.FourLetter("srvr")) {
		if v, found := strings.CutPrefix(line, "Zookeeper version: "); found {
			v, _, _ = strings.Cut(v, "-")
			v, _, _ = strings.Cut(v, ",")
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

// read sends the four-letter word mntr. The server counts this request before it
// answers, so the difference of two reads contains the cost of one of them.
func (s *zooKeeper) read() (c counters, err error) {
	defer func() {
		if fault := recover(); fault != nil {
			err = fmt.Errorf("bench: %v", fault)
		}
	}()
	m := s.Mntr()
	return counters{
		received: float64(m["zk_packets_received"]), sent: float64(m["zk_packets_sent"]),
		bytesIn: float64(m["zk_bytes_received_count"]), bytesOut: float64(m["zk_response_bytes"]),
		contenders: float64(m["zk_ephemerals_count"]), watchers: float64(m["zk_watch_count"]),
	}, nil
}

// testingTB is the testing.TB that package zktest needs outside of a test. Its Fatal
// panics, and the callers recover.
type testingTB struct {
	testing.TB // nil, because zktest calls only methods that testingTB itself has
	cleanUps   []func()
}

func (*testingTB) Helper()                      {}
func (*testingTB) Fatal(args ...any)            { panic(fmt.Sprint(args...)) }
func (*testingTB) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
func (*testingTB) Skipf(f string, args ...any)  { panic(fmt.Sprintf(f, args...)) }
func (t *testingTB) Cleanup(f func())           { t.cleanUps = append(t.cleanUps, f) }
func (t *testingTB) cleanUp() {
	for _, f := range t.cleanUps {
		f()
	}
	t.cleanUps = nil
}
