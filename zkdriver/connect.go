package zkdriver

import (
	"context"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/zkdriver/internal/zkconn"
)

var (
	_ driver.Session   = (*session)(nil)
	_ driver.Inspector = (*session)(nil)
)

func connect(ctx context.Context, settings *settings) (*session, error) {
	s := &session{settings: settings, secret: settings.newSecret()}
	config := settings.connConfig()
	config.Logins = func() [][]byte { return settings.logins(s.secret) }
	config.HasNodes = s.own.any
	config.Events = events{s}
	conn, err := zkconn.Dial(ctx, config)
	if err != nil {
		return nil, err
	}
	s.conn = conn
	return s, nil
}

type events struct{ *session }

func (e events) Changed(path string, change zkconn.Change) {
	switch change {
	case zkconn.Written:
		e.watches.written(path)
	case zkconn.Deleted:
		if queue, name, ok := e.settings.splitPath(path); ok {
			e.own.nodeGone(queue, name, e.own.createdSoFar())
		}
		e.watches.fire(path, driver.Changed)
	default:
		e.watches.fire(path, driver.Changed)
	}
}

func (e events) Disconnected()  { e.watches.disconnected() }
func (e events) Ended()         { e.watches.close() }
func (e events) Watching() bool { return e.watches.any() }
