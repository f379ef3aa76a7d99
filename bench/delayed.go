package main

import (
	"fmt"
	"time"

	"github.com/dlock-go/dlock/bench/internal/delay"
)

type delayedServer struct {
	*zooKeeper
	proxy *delay.Proxy
}

// startDelayed starts a server behind a proxy that delays each direction. It
// returns an error if this machine cannot keep the delay accurate.
func startDelayed(each time.Duration) (*delayedServer, error) {
	trip, err := delay.RoundTrip(each)
	if err == nil {
		err = checkRoundTrip(trip, each)
	}
	if err != nil {
		return nil, err
	}
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

// checkRoundTrip returns an error if the measured round trip differs from twice
// the one-way delay by more than 10%.
func checkRoundTrip(trip, each time.Duration) error {
	if off := (trip - 2*each).Abs(); off > 2*each/10 {
		return fmt.Errorf("bench: a round trip through the delay takes %v, and should take %v: stop other work on this machine", trip, 2*each)
	}
	return nil
}
