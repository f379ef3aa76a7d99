package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/session"
	"github.com/dlock-go/dlock/driver"
)

// lane is a store on one connection, which holds a lock of GET_LOCK for a node.
type lane struct {
	store
	holder int64  // the server's number of the connection
	leave  func() // gives back the slot in the pool
}

var _ session.Blocker = (*store)(nil)

// CreateOnLane implements session.Blocker.
func (s *store) CreateOnLane(ctx context.Context, op session.Op, queue, prefix string, data []byte) (int64, []session.Row, session.Lane, error) {
	conn, leave := s.pool.Lane(ctx)
	if conn == nil || s.connector.moved.Load() {
		if conn != nil {
			_ = conn.Close()
			leave()
		}
		token, nodes, err := s.Create(ctx, op, queue, prefix, data)
		return token, nodes, nil, err
	}
	l := &lane{store: *s, leave: leave}
	l.on = conn
	token, nodes, holder, err := l.create(ctx, op, queue, prefix, data)
	if err != nil || holder == 0 {
		l.end(err)
		return token, nodes, nil, err
	}
	l.holder = holder
	return token, nodes, l, nil
}

// end gives the connection back. After an error it may still hold the lock, so
// it is closed.
func (l *lane) end(err error) {
	if err != nil {
		discard(l.on)
	}
	_ = l.on.Close()
	l.leave()
}

// Close implements session.Lane.
func (l *lane) Close() { l.end(sql.ErrConnDone) }

// Delete implements session.Lane.
func (l *lane) Delete(ctx context.Context, op session.Op, queue string, token int64, why driver.Cause) error {
	err := l.store.Delete(ctx, op, queue, token, why)
	l.end(err)
	return err
}

// Replace implements session.Lane.
func (l *lane) Replace(ctx context.Context, op session.Op, queue string, token int64, prefix string) error {
	err := l.store.Replace(ctx, op, queue, token, prefix)
	l.end(err)
	return err
}

var errMoved = errors.New("a proxy uses another connection to the server for each statement")

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
		err = errMoved
		if !l.connector.moved.Swap(true) {
			slog.Default().WarnContext(ctx, "mysql: waiters poll, because "+err.Error(), "server", l.Server())
		}
	}
	if err != nil {
		l.end(err)
		l.kill(ctx)
	}
	return now, status == "held" && len(now.Nodes) == len(names), err
}

// killWithin is short, because Close waits for it.
const killWithin = 2 * time.Second

// kill ends a wait that was given up. The server would notice only after it,
// and keep the lock of the node until then.
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
