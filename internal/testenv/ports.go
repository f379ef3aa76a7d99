package testenv

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

// Ports lie below Linux's range for outgoing connections, which could take the
// port of a stopped server. Package zktest needs five digits.
const (
	firstPort = 15000
	lastPort  = 31999
)

var ports struct {
	sync.Mutex
	reserved map[int]io.Closer
}

// Listen listens on a free loopback port, which it reserves like [FreePort].
func Listen() (net.Listener, error) {
	var err error
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if !reservePort(port) {
			continue
		}
		var l net.Listener
		if l, err = net.Listen("tcp", Loopback(port)); err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("testenv: no free port: %w", err)
}

// reservePort reports whether the port was free. Other test binaries see its
// binding of 127.0.0.2.
func reservePort(port int) bool {
	ports.Lock()
	defer ports.Unlock()
	if ports.reserved[port] != nil {
		return false
	}
	reservation, err := net.Listen("tcp", net.JoinHostPort("127.0.0.2", strconv.Itoa(port)))
	if errors.Is(err, syscall.EADDRINUSE) {
		return false
	}
	if ports.reserved == nil {
		ports.reserved = make(map[int]io.Closer)
	}
	if err != nil {
		ports.reserved[port] = io.NopCloser(nil)
		return true
	}
	ports.reserved[port] = reservation
	return true
}

// FreePort returns a loopback port on which no program is listening. It returns
// each port only once, even to other test binaries on the machine.
func FreePort() (int, error) {
	l, err := Listen()
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
