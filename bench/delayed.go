package main

import (
	"fmt"
	"time"

	"github.com/dlock-go/dlock/bench/internal/delay"
)

// delayedServer is a server that clients reach through a network delay.
type delayedServer struct {
	*zooKeeper
	proxy *delay.Proxy
}

// startDelayed starts a server that is delay away from its clients, in each direction.
func startDelayed(each time.Duration) (*delayedServer, error) {
	zk, err := startZooKeeper(nil)
	if err != nil {
		return nil, err
	}
	proxy, err := delay.Start(zk.Addr(), each)
	if err != nil {
		zk.stop()
		return nil, err
	}
	return &delayedServer{zk, proxy}, nil
}

func (s *delayedServer) addr() string { return s.proxy.Addr() }

func (s *delayedServer) stop() {
	s.proxy.Close()
	s.zooKeeper.stop()
}

// measureDelay measures a round trip through the delay, with as many connections as
// the workloads that contend. It returns an error if the result is too far off.
func measureDelay(each time.Duration) (trip time.Duration, err error) {
	const connections, pings = 8, 250
	trip, err = delay.RoundTrip(each, connections, pings)
	if err != nil {
		return 0, err
	}
	return trip, checkRoundTrip(trip, each)
}

// checkRoundTrip returns an error if a round trip differs by more than a tenth from
// twice the delay.
func checkRoundTrip(trip, each time.Duration) error {
	if off := (trip - 2*each).Abs(); off > 2*each/10 {
		return fmt.Errorf("bench: a round trip through the delay takes %v, and should take %v: stop other work on this machine, or choose a longer -delay", trip, 2*each)
	}
	return nil
}
