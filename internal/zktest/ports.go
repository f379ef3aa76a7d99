package zktest

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
)

// Ports come from below the range that Linux gives to outgoing connections:
// none of those can take the port of a server that is down for a moment, and
// nobody can by chance connect to himself. All of them have five digits.
const (
	firstPort = 15000
	lastPort  = 31999
)

var ports struct {
	sync.Mutex
	claims map[int]io.Closer
}

// listenLoopback listens on a free loopback port.
func listenLoopback() (net.Listener, error) {
	var err error
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if !claimPort(port) {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp", loopback(port)); err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("zktest: no free port: %w", err)
}

// claimPort makes sure that no port is given out twice, neither by this process nor by other test binaries
// on the machine: for those it keeps the port occupied on an address that nobody
// uses, as long as the process lives. Against other programs, and where there
// is no such address, only trying again helps: see startProcess.
func claimPort(port int) bool {
	ports.Lock()
	defer ports.Unlock()
	if ports.claims[port] != nil {
		return false
	}
	claim, err := net.Listen("tcp", net.JoinHostPort("127.0.0.2", strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return false
	}
	if ports.claims == nil {
		ports.claims = make(map[int]io.Closer)
	}
	if err != nil {
		ports.claims[port] = io.NopCloser(nil)
		return true
	}
	ports.claims[port] = claim
	return true
}

// freePort returns a loopback port that nobody listens on at the moment.
func freePort() (int, error) {
	l, err := listenLoopback()
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
