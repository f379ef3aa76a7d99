package zkdriver

import (
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// session implements driver.Session on top of a zkconn.Conn. Its background
// work runs on goroutines of that Conn.
type session struct {
	settings *settings
	secret   secret
	conn     *zkconn.Conn

	own     ownNodes
	queues  queueCache
	watches watches
	orphans orphans
	values  valueCache
}

func (s *session) Done() <-chan struct{} { return s.conn.Lease().Done() }
func (s *session) Err() error            { return s.conn.Lease().Err() }
func (s *session) Close() error          { return s.conn.Close() }

// Describe implements driver.Inspector. It does not reveal the session's
// password.
func (s *session) Describe() driver.SessionInfo { return s.conn.Describe() }

// OnHeartbeat implements driver.Inspector.
func (s *session) OnHeartbeat(f func(left, term time.Duration)) bool {
	s.conn.Lease().OnRenew(f)
	return true
}
