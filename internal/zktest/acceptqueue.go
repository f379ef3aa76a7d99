package zktest

import (
	"net"
	"strconv"
	"sync"
	"time"
)

// WithBacklog limits how many connections wait for the server to accept them.
// It sets clientPortListenBacklog, which is 50 otherwise.
func WithBacklog(n int) Option {
	return WithConfig(map[string]string{"clientPortListenBacklog": strconv.Itoa(n)})
}

// maxBacklog bounds the connections that [Server.FillAcceptQueue] makes.
const maxBacklog = 4096

// FillAcceptQueue pauses the server and makes connections until the server's
// accept queue is full. The system then drops further attempts, so that a
// client gets no answer at all, not even a refusal. Open connections stay. The
// returned function resumes the server and closes the connections. It may be
// called twice.
//
// It takes longer if the server was started without [WithBacklog].
func (s *Server) FillAcceptQueue() (end func()) {
	s.t.Helper()
	s.Pause()
	var waiting []net.Conn
	failed := 0
	// The first failure does not prove that the queue is full: the server may
	// accept connections for a moment longer, until it has stopped.
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
		s.proc.Resume() // an error means that the server was killed meanwhile, and does no harm
	})
	s.t.Cleanup(end)
	if failed < 2 {
		s.t.Fatalf("zktest: %d connections do not fill the accept queue", len(waiting))
	}
	return end
}
