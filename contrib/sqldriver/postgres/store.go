package postgres

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/session"
	"github.com/dlock-go/dlock/driver"
)

// store implements [session.Store] for one session.
type store struct {
	connector *connector
	*session.Pool
	listener *listener
	texts    *texts
}

var _ session.Listener = (*store)(nil)

func newStore(c *connector) *store {
	s := &store{connector: c, Pool: newPool(c), texts: newTexts(c.options.schema)}
	s.listener = newListener(s)
	return s
}

// texts holds the SQL statements of the driver for one schema.
type texts struct {
	version, begin, beat, expire, tidy, end, append, remove, removeAny, replace, setValue, cancel, list, look, read, value, walk string
}

func newTexts(schema string) *texts {
	t := &texts{
		version:   `SELECT version, current_setting('client_encoding'), current_setting('server_encoding') FROM dlock.meta`,
		begin:     `SELECT * FROM dlock.begin_session($1, make_interval(secs => $2), make_interval(secs => $3), $4)`,
		beat:      `SELECT dlock.beat($1)`,
		expire:    `SELECT dlock.expire()`,
		tidy:      `SELECT dlock.tidy()`,
		end:       `SELECT dlock.end_session($1)`,
		append:    `CALL dlock.append($1, $2, $3, $4, $5, NULL, NULL, NULL, NULL)`,
		remove:    `CALL dlock.remove($1, $2, $3, $4, $5, NULL)`,
		removeAny: `SELECT dlock.remove_any($1, $2, $3, $4, $5)`,
		replace:   `SELECT dlock.replace($1, $2, $3, $4, $5)`,
		setValue:  `SELECT dlock.keep($1, $2, $3, $4, $5)`,
		cancel:    `SELECT dlock.cancel($1, $2, $3)`,
		list: `SELECT s.id IS NOT NULL, n.name, CASE WHEN n.session = $1 THEN n.token ELSE 0 END
			FROM (VALUES (1)) x LEFT JOIN dlock.session s ON s.id = $1 AND s.era = dlock.here() LEFT JOIN dlock.node n ON n.queue = $2`,
		look: `SELECT s.id IS NOT NULL, w.queue, coalesce(v.version, 0), n.name, CASE WHEN n.session = $1 THEN n.token ELSE 0 END
			FROM unnest($2::text[], $3::bigint[]) AS w (queue, known)
			LEFT JOIN dlock.session s ON s.id = $1 AND s.era = dlock.here()
			LEFT JOIN dlock.queue q ON q.name = w.queue
			CROSS JOIN LATERAL (SELECT dlock.shown(q.version) AS version) v
			LEFT JOIN dlock.node n ON n.queue = w.queue AND v.version IS DISTINCT FROM w.known`,
		read: `SELECT s.id IS NOT NULL, n.token, encode(n.data, 'hex'), coalesce(n.session, ''),
				(extract(epoch FROM n.created) * 1000000)::bigint,
				(extract(epoch FROM CASE WHEN o.server = pg_postmaster_start_time() AND isfinite(o.deadline)
					THEN o.deadline - clock_timestamp() END) * 1000000)::bigint
			FROM (VALUES (1)) x LEFT JOIN dlock.session s ON s.id = $1 AND s.era = dlock.here() LEFT JOIN dlock.node n ON n.queue = $2 AND n.name = $3
			LEFT JOIN dlock.session o ON o.id = n.session`,
		value: `SELECT s.id IS NOT NULL, k.token, encode(k.value, 'hex')
			FROM (VALUES (1)) x LEFT JOIN dlock.session s ON s.id = $1 AND s.era = dlock.here() LEFT JOIN dlock.kept k ON k.queue = $2`,
		walk: `SELECT DISTINCT s.id IS NOT NULL, n.queue
			FROM (VALUES (1)) x LEFT JOIN dlock.session s ON s.id = $1 AND s.era = dlock.here()
			LEFT JOIN dlock.node n ON $2 = '' OR n.queue = $2 OR starts_with(n.queue, $2 || '/')`,
	}
	for _, text := range []*string{&t.version, &t.begin, &t.beat, &t.expire, &t.tidy, &t.end, &t.append, &t.remove, &t.removeAny, &t.replace, &t.setValue, &t.cancel, &t.list, &t.look, &t.read, &t.value, &t.walk} {
		*text = inSchema(*text, schema)
	}
	return t
}

func (s *store) query(ctx context.Context, text string, args []any, row func(scan func(...any) error) error) error {
	return markError(ctx, s.send(ctx, text, args, row))
}

func (s *store) send(ctx context.Context, text string, args []any, row func(scan func(...any) error) error) error {
	rows, err := s.rows(ctx, text, args)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (s *store) rows(ctx context.Context, text string, args []any) (*sql.Rows, error) {
	db, err := s.DB()
	if err != nil {
		return nil, err
	}
	rows, err := db.QueryContext(ctx, text, args...)
	return rows, s.Busy(err)
}

// querySpare is like query, for heartbeats and polls: it spares the pool's
// connections while it can use that of the notices.
func (s *store) querySpare(ctx context.Context, text string, args []any, row func(scan func(...any) error) error) error {
	err := s.listener.do(ctx, func(conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, text, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := row(rows.Scan); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	if err == errNotRun {
		return s.query(ctx, text, args, row)
	}
	return markError(ctx, err)
}

func (s *store) one(ctx context.Context, value any, text string, args ...any) error {
	return s.query(ctx, text, args, func(scan func(...any) error) error { return scan(value) })
}

func (s *store) change(ctx context.Context, text string, args ...any) error {
	var status string
	if err := s.one(ctx, &status, text, args...); err != nil {
		return err
	}
	return session.StatusError(status)
}

// Open implements session.Store.
func (s *store) Open(ctx context.Context) error {
	version, err := s.version(ctx)
	if missing(err) {
		if err = s.createTables(ctx); err == nil {
			version, err = s.version(ctx)
		}
	} else if denied(err) {
		return fmt.Errorf("%w\nthe user may not use the tables of dlock. Let an operator run:\n\n%s",
			err, grants(s.connector.options.schema, s.user()))
	}
	if err != nil {
		return err
	}
	return session.CheckVersion(fmt.Sprintf("schema %q", s.connector.options.schema), version, schemaVersion)
}

// version returns the version of the tables. It rejects connections with an
// encoding other than UTF-8, because programs with different encodings would
// use different queues for the same lock.
func (s *store) version(ctx context.Context) (version int, err error) {
	var client, server string
	err = s.query(ctx, s.texts.version, nil, func(scan func(...any) error) error { return scan(&version, &client, &server) })
	if err == nil && version != 0 && client != "UTF8" && server != "SQL_ASCII" {
		err = fmt.Errorf("the connections of the *sql.DB have client_encoding %s, and dlock needs UTF8: "+
			"add client_encoding=UTF8 to their data source name", client)
	}
	return version, err
}

// createTables creates the tables and functions. An advisory lock keeps
// processes from doing so concurrently.
func (s *store) createTables(ctx context.Context) error {
	schema := s.connector.options.schema
	db, err := s.DB()
	if err == nil {
		_, err = db.ExecContext(ctx, createStatements(schema))
	}
	if denied(err) {
		return fmt.Errorf("%w\nthe tables are missing, and the user may not create them. Let an operator run:\n\n%s\n%s",
			err, Statements(schema), grants(schema, s.user()))
	}
	return markError(ctx, err)
}

func (s *store) user() string {
	if s.connector.config == nil {
		return "user"
	}
	return s.connector.config.User
}

// Begin implements session.Store.
func (s *store) Begin(ctx context.Context, id string, timeout time.Duration) (b session.Begun, err error) {
	o := s.connector.options
	var wait, rest, grace int64
	err = s.query(ctx, s.texts.begin, []any{id, timeout.Seconds(), o.grace.Seconds(), o.emptyNew}, func(scan func(...any) error) error {
		return scan(&wait, &rest, &b.Generation, &grace)
	})
	b.Wait, b.Rest = time.Duration(wait)*time.Millisecond, time.Duration(rest)*time.Millisecond
	b.Grace = time.Duration(grace) * time.Millisecond
	if own := max(o.grace, timeout); err == nil && own < b.Grace {
		s.connector.graces.Do(func() {
			slog.Default().WarnContext(ctx, "postgres: other clients of the schema have a longer grace: give all clients the same parameter grace, "+
				"at least their longest session_timeout", "own", own, "longest", b.Grace)
		})
	}
	return b, err
}

func ignore(func(...any) error) error { return nil }

// Beat implements session.Store.
func (s *store) Beat(ctx context.Context, id string) (time.Duration, error) {
	var millis sql.NullInt64
	err := s.querySpare(ctx, s.texts.beat, []any{id}, func(scan func(...any) error) error { return scan(&millis) })
	if err != nil {
		return 0, err
	}
	if !millis.Valid {
		return 0, session.ErrUnknownSession
	}
	return time.Duration(millis.Int64) * time.Millisecond, nil
}

// Expire implements session.Store.
func (s *store) Expire(ctx context.Context) (ended bool, err error) {
	err = s.one(ctx, &ended, s.texts.expire)
	return ended, err
}

// Tidy implements session.Store.
func (s *store) Tidy(ctx context.Context) (more bool, err error) {
	err = s.one(ctx, &more, s.texts.tidy)
	return more, err
}

// End implements session.Store.
func (s *store) End(ctx context.Context, id string) error {
	return s.query(ctx, s.texts.end, []any{id}, ignore)
}

// Create implements session.Store.
func (s *store) Create(ctx context.Context, op session.Op, queue, prefix string, data []byte) (token int64, nodes []session.Row, err error) {
	var status string
	var own, created sql.NullInt64
	var list []byte
	args := []any{op.Session, op.Generation, queue, prefix, notNull(data)}
	err = s.query(ctx, s.texts.append, args, func(scan func(...any) error) error {
		return scan(&status, &own, &created, &list)
	})
	if err == nil {
		err = session.StatusError(status)
	}
	var ahead []string
	if err == nil && list != nil {
		err = json.Unmarshal(list, &ahead)
	}
	for _, name := range ahead {
		nodes = append(nodes, session.Row{Name: name})
	}
	nodes = append(nodes, session.Row{Name: driver.FormatName(prefix, own.Int64), Token: own.Int64, Created: created.Int64})
	return own.Int64, nodes, err
}

// notNull replaces nil by an empty slice, because pgx sends nil as NULL.
func notNull(data []byte) []byte { return append([]byte{}, data...) }

// Delete implements session.Store.
func (s *store) Delete(ctx context.Context, op session.Op, queue string, token int64, why driver.Cause) error {
	return s.change(ctx, s.texts.remove, op.Session, op.Generation, queue, token, why.String()[:1])
}

// Replace implements session.Store.
func (s *store) Replace(ctx context.Context, op session.Op, queue string, token int64, prefix string) error {
	return s.change(ctx, s.texts.replace, op.Session, op.Generation, queue, token, prefix)
}

// Remove implements session.Store.
func (s *store) Remove(ctx context.Context, op session.Op, queue, name string, token int64) error {
	return s.change(ctx, s.texts.removeAny, op.Session, op.Generation, queue, name, token)
}

// SetValue implements session.Store.
func (s *store) SetValue(ctx context.Context, op session.Op, queue string, token int64, value []byte) error {
	return s.change(ctx, s.texts.setValue, op.Session, op.Generation, queue, token, value)
}

// Value implements session.Store.
func (s *store) Value(ctx context.Context, id, queue string) (value []byte, token int64, err error) {
	known := true
	var number sql.NullInt64
	var text sql.NullString
	err = s.query(ctx, s.texts.value, []any{id, queue}, func(scan func(...any) error) error { return scan(&known, &number, &text) })
	if err = session.IfKnown(known, err); err == nil {
		value, err = hex.DecodeString(text.String)
	}
	return value, number.Int64, err
}

// Cancel implements [session.Store]. It takes no slot, because all slots may be
// held by changes that end only after this Cancel.
func (s *store) Cancel(ctx context.Context, op session.Op, data []byte) error {
	return s.change(ctx, s.texts.cancel, op.Session, op.Generation, notNull(data))
}

// List implements session.Store.
func (s *store) List(ctx context.Context, id, queue string) (nodes []session.Row, err error) {
	known := true
	err = s.query(ctx, s.texts.list, []any{id, queue}, func(scan func(...any) error) error {
		var name sql.NullString
		var token sql.NullInt64
		if err := scan(&known, &name, &token); err != nil {
			return err
		}
		if name.Valid {
			nodes = append(nodes, session.Row{Name: name.String, Token: token.Int64})
		}
		return nil
	})
	return nodes, session.IfKnown(known, err)
}

// Look implements session.Store.
func (s *store) Look(ctx context.Context, id string, versions map[string]int64) (map[string]session.Snapshot, error) {
	var queues []string
	var numbers []int64
	for queue, version := range versions {
		queues, numbers = append(queues, queue), append(numbers, version)
	}
	found, known := make(map[string]session.Snapshot), true
	err := s.querySpare(ctx, s.texts.look, []any{id, queues, numbers}, func(scan func(...any) error) error {
		var queue string
		var version int64
		var name sql.NullString
		var token sql.NullInt64
		if err := scan(&known, &queue, &version, &name, &token); err != nil {
			return err
		}
		snapshot := found[queue]
		snapshot.Version = version
		snapshot.Same = version != 0 && version == versions[queue]
		if name.Valid {
			snapshot.Nodes = append(snapshot.Nodes, session.Row{Name: name.String, Token: token.Int64})
		}
		found[queue] = snapshot
		return nil
	})
	return found, session.IfKnown(known, err)
}

// Read implements session.Store.
func (s *store) Read(ctx context.Context, id, queue, name string) (info driver.NodeInfo, err error) {
	known := true
	var token, created, left sql.NullInt64
	var data sql.NullString
	err = s.query(ctx, s.texts.read, []any{id, queue, name}, func(scan func(...any) error) error {
		return scan(&known, &token, &data, &info.Owner, &created, &left)
	})
	if err = session.IfKnown(known, err); err == nil && !token.Valid {
		err = driver.ErrGone
	}
	if err != nil {
		return info, err
	}
	info.Token, info.Created = token.Int64, time.UnixMicro(created.Int64)
	info.SessionLeft = max(0, time.Duration(left.Int64)*time.Microsecond)
	info.Data, err = hex.DecodeString(data.String)
	return info, err
}

// Walk implements session.Store.
func (s *store) Walk(ctx context.Context, id, prefix string) (queues []string, err error) {
	known := true
	err = s.query(ctx, s.texts.walk, []any{id, prefix}, func(scan func(...any) error) error {
		var queue sql.NullString
		if err := scan(&known, &queue); err != nil {
			return err
		}
		if queue.Valid {
			queues = append(queues, queue.String)
		}
		return nil
	})
	return queues, session.IfKnown(known, err)
}

// Server implements session.Store.
func (s *store) Server() string { return s.connector.server() }

// Close implements session.Store.
func (s *store) Close() error {
	s.listener.close()
	return s.Pool.Close()
}

// Format keeps the password out of the output of every verb.
func (s *store) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "postgres store of "+s.Server())
}
