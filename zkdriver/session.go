package zkdriver

import (
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// session is one session: a zkconn.Conn, and what this process remembers of
// queues and nodes.
//
// A session starts no goroutine of its own; orphans are removed on a goroutine
// of its Conn: see Conn.Go.
type session struct {
	settings *settings
	secret   secret
	conn     *zkconn.Conn

	own            ownNodes
	queues         queueCache
	watches        watches
	orphans        orphans
	prefetchPolicy prefetchPolicy
}

func (s *session) Done() <-chan struct{} { return s.conn.Lease().Done() }
func (s *session) Err() error            { return s.conn.Lease().Err() }
func (s *session) Close() error          { return s.conn.Close() }

// Describe implements driver.Describer. It does not show the session's
// password.
func (s *session) Describe() driver.SessionInfo { return s.conn.Describe() }
