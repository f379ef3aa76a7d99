package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/zktest"
)

// The names of the servers.
const (
	zookeeper = "ZooKeeper"
	etcd      = "etcd"
)

// server is what competitors are measured against.
type server interface {
	addr() string
	version() string
	read() (counters, error)
	stop()
}

// counters is what a server has counted since it started, and what it holds.
type counters struct {
	received, sent       float64 // packets
	bytesIn, bytesOut    float64
	contenders, watchers float64 // at this moment
}

func (c counters) minus(d counters) counters {
	return counters{
		received: c.received - d.received, sent: c.sent - d.sent,
		bytesIn: c.bytesIn - d.bytesIn, bytesOut: c.bytesOut - d.bytesOut,
		contenders: c.contenders, watchers: c.watchers,
	}
}

// zooKeeper is a server with the settings of a new installation: a tick of 2 s, fsync before every
// answer to a write, a heap of 1,000 MB, and the JVM's own choice of compilers and collector.
type zooKeeper struct {
	*zktest.Server
	stand *standIn
	own   counters // what one look at the counters costs
}

func startZooKeeper() (_ *zooKeeper, err error) {
	stand := &standIn{}
	defer func() {
		if fault := recover(); fault != nil {
			stand.cleanUp()
			err = fmt.Errorf("bench: %v", fault)
		}
	}()
	s := &zooKeeper{stand: stand}
	s.Server = zktest.Start(stand,
		zktest.WithConfig(map[string]string{"tickTime": "2000", "minSessionTimeout": "4000"}),
		zktest.WithContainerCheck(time.Minute), // as a server does by itself
		zktest.WithJVM("-XX:TieredStopAtLevel=4", "-Xmx1000m", "-XX:-UseSerialGC"))
	if err := s.calibrate(); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// calibrate finds out what looking at the counters adds to them.
func (s *zooKeeper) calibrate() error {
	for range 3 {
		first, err := s.read()
		if err != nil {
			return err
		}
		second, err := s.read()
		if err != nil {
			return err
		}
		s.own = second.minus(first)
		s.own.contenders, s.own.watchers = 0, 0
	}
	return nil
}

func (s *zooKeeper) addr() string { return s.Addr() }
func (s *zooKeeper) stop()        { s.stand.cleanUp() }

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

// read asks mntr. Its own cost is that of a look, not of the difference: the first of two looks is
// counted before it is answered.
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

// standIn is what package zktest takes for a test. Fatal panics; the callers recover.
type standIn struct {
	testing.TB // nil: whatever is not below is not called
	cleanUps   []func()
}

func (*standIn) Helper()                      {}
func (*standIn) Fatal(args ...any)            { panic(fmt.Sprint(args...)) }
func (*standIn) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
func (*standIn) Skipf(f string, args ...any)  { panic(fmt.Sprintf(f, args...)) }
func (s *standIn) Cleanup(f func())           { s.cleanUps = append(s.cleanUps, f) }
func (s *standIn) cleanUp() {
	for _, f := range s.cleanUps {
		f()
	}
	s.cleanUps = nil
}
