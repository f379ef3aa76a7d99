package delay

import (
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

// RoundTrip measures how long a round trip takes through proxies with this delay. It
// sends pings over several connections at the same time to a server that returns
// what it gets, and returns the median of all round trips. Each connection has one
// ping under way at a time.
func RoundTrip(delay time.Duration, connections, pings int) (median time.Duration, err error) {
	echo, err := startEcho()
	if err != nil {
		return 0, err
	}
	defer echo.close()
	p, err := Start(echo.listener.Addr().String(), delay)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	trips := make([][]time.Duration, connections)
	errs := make([]error, connections)
	var pinging sync.WaitGroup
	for i := range connections {
		pinging.Go(func() { trips[i], errs[i] = ping(p.Addr(), pings) })
	}
	pinging.Wait()
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	all := slices.Sorted(slices.Values(slices.Concat(trips...)))
	return all[len(all)/2], nil
}

// ping returns the durations of n round trips on one connection.
func ping(addr string, n int) (trips []time.Duration, err error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	for range n {
		began := time.Now()
		if _, err := conn.Write([]byte("ping")); err != nil {
			return nil, err
		}
		if _, err := io.ReadFull(conn, make([]byte, 4)); err != nil {
			return nil, err
		}
		trips = append(trips, time.Since(began))
	}
	return trips, nil
}

// echoServer returns on each connection what it reads there.
type echoServer struct {
	listener net.Listener
	running  sync.WaitGroup
}

func startEcho() (*echoServer, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &echoServer{listener: l}
	s.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // the server is closed
			}
			s.running.Go(func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn) // if this fails, a ping returns an error
			})
		}
	})
	return s, nil
}

// close makes the server accept no more connections, and waits until all clients have
// closed theirs.
func (s *echoServer) close() {
	s.listener.Close()
	s.running.Wait()
}
