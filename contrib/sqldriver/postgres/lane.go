package postgres

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"log/slog"
	"slices"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/session"
	"github.com/dlock-go/dlock/driver"
)

// lane is a store on one connection, which holds an advisory lock for a node.
type lane struct {
	store
	backend int64  // the server process of the connection
	leave   func() // gives back the slot in the pool
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
	token, nodes, backend, err := l.create(ctx, op, queue, prefix, data)
	if err != nil || backend == 0 {
		l.end(err)
		return token, nodes, nil, err
	}
	l.backend = backend
	return token, nodes, l, nil
}

// end gives the connection back. After an error it may still hold the lock, so
// it is closed.
func (l *lane) end(err error) {
	if err != nil {
		_ = l.on.Raw(func(any) error { return sqldriver.ErrBadConn })
	}
	_ = l.on.Close()
	l.leave()
}

// Close implements session.Lane.
func (l *lane) Close() { l.end(sql.ErrConnDone) }

// Delete implements session.Lane.
func (l *lane) Delete(ctx context.Context, op session.Op, queue string, token int64, why driver.Cause) error {
	err := l.remove(ctx, op, queue, token, why, l.backend)
	l.end(err)
	if err == errMoved {
		l.noLanes(ctx)
		return nil
	}
	return err
}

// Replace implements session.Lane. It closes the connection, because its lock
// must not end before the commit.
func (l *lane) Replace(ctx context.Context, op session.Op, queue string, token int64, prefix string) error {
	defer l.Close()
	return l.store.Replace(ctx, op, queue, token, prefix)
}

var errMoved = errors.New("a proxy uses another connection to the server for each statement")

// noLanes makes the sessions of the connector do without lanes from now on.
func (s *store) noLanes(ctx context.Context) {
	if !s.connector.moved.Swap(true) {
		slog.Default().WarnContext(ctx, "postgres: waiters poll, because "+errMoved.Error(), "server", s.Server())
	}
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
		err = errMoved
		l.noLanes(ctx)
	}
	if err != nil {
		l.end(err) // pgx cancels the statement in the server
	}
	return now, status == "held" && len(now.Nodes) == len(names), err
}

func sequence(name string) int64 {
	_, seq, _ := driver.ParseName(name)
	return seq
}
