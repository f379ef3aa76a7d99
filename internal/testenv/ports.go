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

// The ports lie below the range that Linux gives to outgoing connections. So no
// outgoing connection can take the port of a server that is down for a moment,
// and no client can connect to itself by chance. All of them have five digits,
// so that all addresses have the same length.
const (
	firstPort = 15000
	lastPort  = 31999
)

var ports struct {
	sync.Mutex
	reserved map[int]io.Closer
}

// Listen listens on a free loopback port, which is reserved for this process:
// see [FreePort].
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

// reservePort reports whether the port was still free and is now reserved for
// this process. Other goroutines of the process see that in ports.reserved.
// Other test binaries see that the port is in use on the loopback address
// 127.0.0.2, which nothing else uses. The reservation lasts as long as the
// process.
//
// Programs that do not use this package can still take the port. On a system
// without the address 127.0.0.2, other test binaries can take it too. In these
// cases only another try with another port helps: see [ErrPortTaken].
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

// FreePort returns a loopback port on which no program listens at the moment.
// It returns each port once: neither this process nor another test binary on
// the machine gets it again.
func FreePort() (int, error) {
	l, err := Listen()
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// Loopback returns host:port of a loopback port.
func Loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
