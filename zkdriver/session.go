package zkdriver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

// session runs its background work on goroutines of its zkconn.Conn.
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

// Describe implements driver.Inspector, without the session's password.
func (s *session) Describe() driver.SessionInfo { return s.conn.Describe() }

func (s *session) OnHeartbeat(f func(left, term time.Duration)) bool {
	s.conn.Lease().OnRenew(f)
	return true
}

var (
	_ driver.Session   = (*session)(nil)
	_ driver.Inspector = (*session)(nil)
)

func connect(ctx context.Context, settings *settings) (*session, error) {
	s := &session{settings: settings, secret: settings.newSecret()}
	s.queues.known, s.queues.trusts = make(map[string]queueInfo), make(map[string]writeTrust)
	config := settings.connConfig()
	config.Logins = func() [][]byte { return settings.logins(s.secret) }
	config.HasNodes = s.own.any
	config.Events = connEvents{s}
	conn, err := zkconn.Dial(ctx, config)
	if err != nil {
		return nil, err
	}
	s.conn = conn
	return s, nil
}

type connEvents struct{ *session }

func (e connEvents) Changed(path string, change zkconn.Change) {
	switch change {
	case zkconn.Written:
		e.watches.wrote(path)
	case zkconn.Deleted:
		if queue, name, ok := e.settings.splitPath(path); ok {
			e.own.nodeGone(queue, name, e.own.addedSoFar())
		}
		e.watches.fire(path, driver.Changed)
	default:
		e.watches.fire(path, driver.Changed)
	}
}

func (e connEvents) Disconnected()  { e.watches.disconnected() }
func (e connEvents) Ended()         { e.watches.close() }
func (e connEvents) Watching() bool { return e.watches.any() }

// explain adds what the driver tried, such as "create a node in", and the
// permission needed.
func explain(err error, do, path, need string) error {
	switch path = zkconn.Printable(path); {
	case err == nil:
		return nil
	case isExplained(err):
		return err
	case errors.Is(err, zk.ErrNoNode):
		return fmt.Errorf("zkdriver: %s %s: %w: %w", do, path, driver.ErrGone, err)
	case errors.Is(err, zk.ErrNoAuth):
		return fmt.Errorf("zkdriver: %s %s: %w: %w: this needs %s: check the ACLs (getAcl), and the user and the password of the dsn; ZooKeeper does not check a password at login",
			do, path, fs.ErrPermission, err, need)
	case errors.Is(err, zk.ErrInvalidACL):
		return fmt.Errorf("zkdriver: %s %s: %w: the server knows no name for this client, which acl=creator needs", do, path, err)
	case errors.Is(err, zk.ErrNoChildrenForEphemerals):
		return fmt.Errorf("zkdriver: %s %s: %w: a part of the path is the node of a session", do, path, err)
	case zkconn.QuotaExceeded(err):
		return fmt.Errorf("zkdriver: %s %s: %w: the hard quota of this path or one above it is exceeded: raise it with setquota", do, path, err)
	case zkconn.Permanent(err):
		return fmt.Errorf("zkdriver: %s %s: %w", do, path, err)
	}
	return fmt.Errorf("zkdriver: %s %s: %w: %w", do, path, driver.ErrUnavailable, err)
}

func isExplained(err error) bool {
	return strings.HasPrefix(err.Error(), "zkdriver: ") || slices.ContainsFunc([]error{driver.ErrSessionEnded, driver.ErrUnavailable, driver.ErrGone,
		driver.ErrBadName, context.Canceled, context.DeadlineExceeded}, func(known error) bool { return errors.Is(err, known) })
}
