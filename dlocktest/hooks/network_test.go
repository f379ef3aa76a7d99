package hooks_test

import (
	"net"
	"sync"
	"testing"

	"github.com/dlock-go/dlock/dlocktest/hooks"
)

// A driver may open connections during a cut, which must not deadlock.
func TestACutWhileConnectionsAreOpened(t *testing.T) {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	n, err := hooks.NewNetwork(server.Addr().String(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	var dials sync.WaitGroup
	for range 4 {
		dials.Go(func() {
			for range 200 {
				if c, err := n.Dial(t.Context(), "tcp", ""); err == nil {
					c.Close()
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { dials.Wait(); close(done) }()
	for {
		select {
		case <-done:
			return
		default:
			n.Cut()()
		}
	}
}
