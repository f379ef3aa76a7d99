package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/session"
)

// lane is a store on one connection, which holds a lock of GET_LOCK for a node.
type lane struct {
	*session.LaneConn
	store
	holder int64 // the server's ID of the connection
}

var _ session.Blocker = (*store)(nil)

// Lane implements session.Blocker.
func (s *store) Lane(ctx context.Context) session.Lane {
	conn := s.pool.Lane(ctx)
	if conn == nil {
		return nil
	}
	l := &lane{LaneConn: conn, store: *s}
	l.on = conn.Conn
	return l
}

// Create implements session.Lane.
func (l *lane) Create(ctx context.Context, op session.Op, queue, prefix string, data []byte) (token int64, nodes []session.Row, ok bool, err error) {
	token, nodes, l.holder, err = l.create(ctx, op, queue, prefix, data)
	return token, nodes, l.holder != 0, err
}

// Await implements session.Lane.
func (l *lane) Await(ctx context.Context, id, queue string, own, ahead int64, names []string) (now session.Snapshot, held bool, err error) {
	var status string
	known := true
	err = l.call(ctx, "dlock_await", []any{id, queue, own, ahead, hexArray(names)}, func(scan func(...any) error) error {
		var released, name sql.NullString
		var token int64
		if err := scan(&status, &known, &released, &name, &token); err != nil {
			return err
		}
		now.Released = released.String
		if name.Valid {
			now.Nodes = append(now.Nodes, session.Row{Name: name.String, Token: token})
		}
		return nil
	})
	err = session.IfKnown(known, err)
	if err == nil && status == "moved" {
		err = session.ErrMoved
	}
	if err != nil {
		l.Discard()
		l.kill(ctx)
	}
	return now, status == "held" && len(now.Nodes) == len(names), err
}

// killWithin is the timeout of kill. It is short, because Close waits for kill.
const killWithin = 2 * time.Second

// kill ends the wait of an Await that was cancelled. Otherwise the server would
// keep the node's lock until the wait ends by itself.
func (l *lane) kill(ctx context.Context) {
	if ctx.Err() == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killWithin)
	defer cancel()
	others := l.store
	others.on = nil
	_ = others.query(ctx, fmt.Sprintf("KILL %d", l.holder), func(func(...any) error) error { return nil })
}
