package zktest

import (
	"net"
	"strconv"
	"sync"
	"time"
)

// WithBacklog sets clientPortListenBacklog, the number of connections that may
// wait for the server to accept them, which is 50 by default.
func WithBacklog(n int) Option {
	return WithConfig(map[string]string{"clientPortListenBacklog": strconv.Itoa(n)})
}

// maxBacklog bounds the connections that [Server.FillAcceptQueue] makes.
const maxBacklog = 4096

// FillAcceptQueue pauses the server and makes connections until its accept
// queue is full. The system then drops further attempts, so that a client gets
// no answer at all, not even a refusal. Open connections stay. The returned
// function resumes the server and closes the connections. It may be called
// twice.
//
// It takes longer without [WithBacklog].
func (s *Server) FillAcceptQueue() (end func()) {
	s.t.Helper()
	s.Pause()
	var waiting []net.Conn
	failed := 0
	// One failure does not prove that the queue is full, because the server may
	// accept connections for another moment until it has stopped.
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
		s.proc.Resume() // fails harmlessly if the server was killed meanwhile
	})
	s.t.Cleanup(end)
	if failed < 2 {
		s.t.Fatalf("zktest: %d connections do not fill the accept queue", len(waiting))
	}
	return end
}
