package zktest

import (
	"net"
	"strconv"
	"sync"
	"time"
)

// WithBacklog sets clientPortListenBacklog, the maximum number of connections
// that the kernel queues until the server accepts them. The default is 50.
func WithBacklog(n int) Option {
	return WithConfig(map[string]string{"clientPortListenBacklog": strconv.Itoa(n)})
}

// maxBacklog limits the number of connections that [Server.FillAcceptQueue]
// opens.
const maxBacklog = 4096

// FillAcceptQueue pauses the server and opens connections until its accept
// queue is full. The kernel then drops further attempts to connect, so that
// clients get no answer, not even a refusal. Established connections stay open.
// end resumes the server and closes the connections opened here. It is
// idempotent.
//
// Use [WithBacklog] to make the queue shorter and thus FillAcceptQueue faster.
func (s *Server) FillAcceptQueue() (end func()) {
	s.t.Helper()
	s.Pause()
	var waiting []net.Conn
	failed := 0
	// A single failure does not mean that the queue is full, because the
	// server may still accept connections until it has stopped.
	for len(waiting) < maxBacklog && failed < 2 {
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
		s.proc.Resume() // has no effect if the server was killed
	})
	s.t.Cleanup(end)
	if failed < 2 {
		s.t.Fatalf("zktest: %d connections do not fill the accept queue", len(waiting))
	}
	return end
}
