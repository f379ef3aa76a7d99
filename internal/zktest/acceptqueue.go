package zktest

import (
	"net"
	"strconv"
	"sync"
	"time"
)

// WithBacklog limits how many connections wait for the server to accept them:
// clientPortListenBacklog, 50 where it is not set.
func WithBacklog(n int) Option {
	return WithConfig(map[string]string{"clientPortListenBacklog": strconv.Itoa(n)})
}

// maxBacklog bounds the connections that [Server.FillAcceptQueue] makes.
const maxBacklog = 4096

// FillAcceptQueue pauses the server and makes connections to it until the queue
// of those that it has to accept is full, so that the system drops whatever
// else wants to connect: a client's attempt gets no answer, neither yes nor no.
// Connections that are there stay. The function that it returns lets the server
// go on and closes the connections; it may be called twice.
//
// Use it with [WithBacklog], or it takes some time.
func (s *Server) FillAcceptQueue() (end func()) {
	s.t.Helper()
	s.Pause()
	var waiting []net.Conn
	failed := 0
	for len(waiting) < maxBacklog && failed < 2 { // after the first failure it may still accept, while it comes to a stop
		conn, err := net.DialTimeout("tcp", s.Addr(), 300*time.Millisecond)
		if err != nil {
			failed++
			continue
		}
		failed = 0
		waiting = append(waiting, conn)
	}
	end = sync.OnceFunc(func() {
		for _, conn := range waiting {
			conn.Close()
		}
		s.proc.Resume() // one that was killed meanwhile has nothing to go on with
	})
	s.t.Cleanup(end)
	if failed < 2 {
		s.t.Fatalf("zktest: %d connections do not fill the accept queue", len(waiting))
	}
	return end
}
