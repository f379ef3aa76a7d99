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

// startDelayed starts a server behind a network delay. The parameter each is
// the delay in each direction.
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

// roundTrips says how long a ping and its answer take through the delay. Each field is
// the median of many pings.
type roundTrips struct {
	Alone    time.Duration // the round trip of a ping if only one connection pings
	Together time.Duration // the same if pingsTogether connections ping at the same time
}

// pingsTogether is the number of connections that ping at the same time. Most workloads
// with contention have as many sessions.
const pingsTogether = 8

// measureDelay measures round trips through the delay. It returns an error if
// the round trips of a single connection differ too much from the delay: see
// checkRoundTrip.
func measureDelay(each time.Duration) (trips roundTrips, err error) {
	const pings = 300
	if trips.Alone, err = delay.RoundTrip(each, 1, pings); err != nil {
		return trips, err
	}
	if trips.Together, err = delay.RoundTrip(each, pingsTogether, pings); err != nil {
		return trips, err
	}
	return trips, checkRoundTrip(trips.Alone, each)
}

// checkRoundTrip returns an error if a round trip differs by more than a tenth from
// twice the delay.
func checkRoundTrip(trip, each time.Duration) error {
	if off := (trip - 2*each).Abs(); off > 2*each/10 {
		return fmt.Errorf("bench: a round trip through the delay takes %v, and should take %v: stop other work on this machine, or choose a longer -delay", trip, 2*each)
	}
	return nil
}
