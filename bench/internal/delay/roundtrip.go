package delay

import (
	"io"
	"net"
	"slices"
	"time"
)

// RoundTrip returns the median duration of round trips through a proxy with the
// given delay in each direction.
func RoundTrip(delay time.Duration) (median time.Duration, err error) {
	echo, err := startEcho()
	if err != nil {
		return 0, err
	}
	defer echo.Close()
	p, err := Start(echo.Addr().String(), delay)
	if err != nil {
		return 0, err
	}
	defer p.Close()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	trips := make([]time.Duration, 101)
	for i := range trips {
		began := time.Now()
		if _, err := conn.Write([]byte("ping")); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(conn, make([]byte, 4)); err != nil {
			return 0, err
		}
		trips[i] = time.Since(began)
	}
	slices.Sort(trips)
	return trips[len(trips)/2], nil
}

func startEcho() (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn) // if this fails, a ping returns an error
			}()
		}
	}()
	return l, nil
}
