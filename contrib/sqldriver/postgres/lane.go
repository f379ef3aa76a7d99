package postgres

import (
	"context"
	"database/sql"
	"slices"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/session"
	"github.com/dlock-go/dlock/driver"
)

// lane is a store on one connection, which holds an advisory lock for a node.
type lane struct {
	*session.LaneConn
	store
	backend int64 // the server process of the connection
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
	token, nodes, l.backend, err = l.create(ctx, op, queue, prefix, data)
	return token, nodes, l.backend != 0, err
}

// Delete implements session.Lane.
func (l *lane) Delete(ctx context.Context, op session.Op, queue string, token int64, why driver.Cause) error {
	return l.remove(ctx, op, queue, token, why, l.backend)
}

// Replace implements session.Lane. It closes the connection, so that the lock
// ends only after the commit.
func (l *lane) Replace(ctx context.Context, op session.Op, queue string, token int64, prefix string) error {
	defer l.Discard()
	return l.store.Replace(ctx, op, queue, token, prefix)
}

// Await implements session.Lane.
func (l *lane) Await(ctx context.Context, id, queue string, own, ahead int64, names []string) (now session.Snapshot, held bool, err error) {
	var status string
	first := slices.IndexFunc(names, func(name string) bool { return sequence(name) == ahead })
	err = l.query(ctx, l.texts.await, []any{id, queue, l.backend, ahead, names}, func(scan func(...any) error) error {
		var released, token sql.NullInt64
		var name sql.NullString
		if err := scan(&status, &released, &name, &token); err != nil {
			return err
		}
		if first >= 0 && released.Int64 == ahead {
			now.Released = names[first]
		}
		if name.Valid {
			now.Nodes = append(now.Nodes, session.Row{Name: name.String, Token: token.Int64})
		}
		return nil
	})
	if err == nil && status == "moved" {
		err = session.ErrMoved
	}
	return now, status == "held" && len(now.Nodes) == len(names), err
}

func sequence(name string) int64 {
	_, seq, _ := driver.ParseName(name)
	return seq
}
