package postgres

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqlstore"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// store is the database as one session sees it.
type store struct {
	connector *connector
	*sqlstore.Pool
	id         string
	generation sqlstore.Generation
	listener   *listener
	texts      *texts
	// unconfirmed counts commits whose wait for a standby was cancelled. The
	// server reports success nevertheless.
	unconfirmed atomic.Int64
}

var (
	_ sqlstore.Store   = (*store)(nil)
	_ session.Notifier = (*store)(nil)
)

func newStore(c *connector) *store {
	s := &store{connector: c, id: rand.Text(), texts: newTexts(c.options.schema)}
	s.Pool = newPool(c, func() { s.unconfirmed.Add(1) })
	s.listener = &listener{store: s, channels: make(map[string]bool), waiting: make(map[string][]chan<- bool)}
	s.listener.life, s.listener.end = context.WithCancel(context.Background())
	return s
}

type texts struct {
	version, begin, beat, expire, tidy, end, append, remove, removeAny, replace, setValue, cancel, look, read, value, walk, settings, oldest, sequences string
}

// operator matches operators that another user's schema in the search_path
// could replace.
var operator = regexp.MustCompile(` (=|<>|-|\*|\|\|)\s`)

func newTexts(schema string) *texts {
	t := &texts{
		version:   `SELECT version, pg_catalog.current_setting('client_encoding'), pg_catalog.current_setting('server_encoding') FROM dlock.meta`,
		begin:     `SELECT wait, rest, era, grace FROM dlock.begin_session($1, pg_catalog.make_interval(secs => $2), pg_catalog.make_interval(secs => $3), $4)`,
		beat:      `SELECT dlock.beat($1)`,
		expire:    `SELECT dlock.expire()`,
		tidy:      `SELECT dlock.tidy()`,
		end:       `SELECT dlock.end_session($1)`,
		append:    `CALL dlock.append($1, $2, $3, $4, $5, NULL, NULL, NULL, NULL)`,
		remove:    `CALL dlock.remove($1, $2, $3, $4, $5, NULL)`,
		removeAny: `SELECT dlock.remove_any($1, $2, $3, $4, $5)`,
		replace:   `SELECT dlock.replace($1, $2, $3, $4, $5)`,
		setValue:  `SELECT dlock.keep($1, $2, $3, $4, $5)`,
		cancel:    `SELECT dlock.cancel($1, $2, $3::pg_catalog.bytea[])`,
		// A queue without a row has version 1, which is lower than in any row.
		look: `SELECT s.id IS NOT NULL, w.i, v.version, n.name, CASE WHEN n.session = $1 THEN n.token ELSE 0 END, dlock.proof(n.data)
			FROM ROWS FROM (pg_catalog.unnest($2::pg_catalog.text[]), pg_catalog.unnest($3::bigint[])) WITH ORDINALITY AS w (queue, known, i)
			LEFT JOIN dlock.session s ON s.id = $1 AND s.era = CASE WHEN $1 <> '' THEN dlock.here() END
			LEFT JOIN dlock.queue q ON q.name = w.queue
			CROSS JOIN LATERAL (SELECT coalesce(dlock.shown(q.version), 1) AS version) v
			LEFT JOIN dlock.node n ON n.queue = w.queue AND v.version <> w.known`,
		read: `SELECT s.id IS NOT NULL, n.token, pg_catalog.encode(n.data, 'hex'), coalesce(n.session, ''),
				(extract(epoch FROM n.created) * 1000000)::bigint,
				(extract(epoch FROM CASE WHEN pg_catalog.isfinite(o.deadline) AND
					(o.server = pg_catalog.pg_postmaster_start_time() OR pg_catalog.pg_is_in_recovery())
					THEN o.deadline - pg_catalog.clock_timestamp() END) * 1000000)::bigint
			FROM (VALUES (1)) x LEFT JOIN dlock.session s ON s.id = $1 AND s.era = CASE WHEN $1 <> '' THEN dlock.here() END LEFT JOIN dlock.node n ON n.queue = $2 AND n.name = $3
			LEFT JOIN dlock.session o ON o.id = n.session`,
		value: `SELECT s.id IS NOT NULL, k.token, pg_catalog.encode(k.value, 'hex')
			FROM (VALUES (1)) x LEFT JOIN dlock.session s ON s.id = $1 AND s.era = CASE WHEN $1 <> '' THEN dlock.here() END LEFT JOIN dlock.kept k ON k.queue = $2`,
		walk: `SELECT DISTINCT s.id IS NOT NULL, n.queue
			FROM (VALUES (1)) x LEFT JOIN dlock.session s ON s.id = $1 AND s.era = CASE WHEN $1 <> '' THEN dlock.here() END
			LEFT JOIN dlock.node n ON $2 = '' OR n.queue = $2 OR pg_catalog.starts_with(n.queue, $2 || '/')`,
		settings: `SELECT pg_catalog.current_setting('server_version'), pg_catalog.current_setting('fsync'), pg_catalog.current_setting('full_page_writes'),
			pg_catalog.current_setting('synchronous_standby_names'), pg_catalog.current_setting('synchronous_commit'),
			(SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_replication),
			pg_catalog.current_setting('max_connections')::int - pg_catalog.current_setting('superuser_reserved_connections')::int -
				(SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_activity WHERE backend_type = 'client backend')`,
		oldest: `SELECT pid, extract(epoch FROM pg_catalog.clock_timestamp() - xact_start)::bigint FROM pg_catalog.pg_stat_activity
			WHERE backend_type = 'client backend' AND backend_xmin IS NOT NULL ORDER BY xact_start LIMIT 1`,
		sequences: `SELECT sequencename::pg_catalog.text, last_value, max_value FROM pg_catalog.pg_sequences WHERE schemaname = $1`,
	}
	for _, text := range []*string{&t.version, &t.begin, &t.beat, &t.expire, &t.tidy, &t.end, &t.append, &t.remove, &t.removeAny, &t.replace, &t.setValue, &t.cancel, &t.look, &t.read, &t.value, &t.walk, &t.settings, &t.oldest, &t.sequences} {
		*text = operator.ReplaceAllString(inSchema(*text, schema), " OPERATOR(pg_catalog.$1) ")
	}
	return t
}

func (s *store) query(ctx context.Context, text string, args []any, row func(scan func(...any) error) error) error {
	return s.answer(ctx, func() error { return s.send(ctx, text, args, row) })
}

// answer makes a request. It fails if any commit, perhaps its own, went
// unconfirmed meanwhile.
func (s *store) answer(ctx context.Context, request func() error) error {
	before := s.unconfirmed.Load()
	err := request()
	if err == nil && s.unconfirmed.Load() != before {
		err = errors.New("the wait for a standby was cancelled")
	}
	return markError(ctx, err)
}

func (s *store) send(ctx context.Context, text string, args []any, row func(scan func(...any) error) error) error {
	db, err := s.DB()
	if err != nil {
		return err
	}
	rows, err := db.QueryContext(ctx, text, args...)
	if err != nil {
		return s.Busy(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// querySpare prefers the listener's connection, so that heartbeats and polls
// take none from the pool.
func (s *store) querySpare(ctx context.Context, text string, args []any, row func(scan func(...any) error) error) error {
	return s.answer(ctx, func() error {
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
			err = s.send(ctx, text, args, row)
		}
		return err
	})
}

func (s *store) one(ctx context.Context, value any, text string, args ...any) error {
	return s.query(ctx, text, args, func(scan func(...any) error) error { return scan(value) })
}

// change calls a function that takes the session ID and generation first.
func (s *store) change(ctx context.Context, generation int64, text string, args ...any) error {
	var status string
	if err := s.one(ctx, &status, text, append([]any{s.id, generation}, args...)...); err != nil {
		return err
	}
	return sqlstore.StatusError(status)
}

func (s *store) Open(ctx context.Context) error {
	version, err := s.version(ctx)
	if missing(err) && s.Observing {
		return nil
	} else if missing(err) {
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
	return session.CheckLayout(fmt.Sprintf("the tables and routines in schema %q", s.connector.options.schema), version, schemaVersion)
}

// Programs with different encodings would use different queues, so version
// rejects all but UTF-8.
func (s *store) version(ctx context.Context) (version int, err error) {
	var client, server string
	err = s.query(ctx, s.texts.version, nil, func(scan func(...any) error) error { return scan(&version, &client, &server) })
	if err == nil && version != 0 && client != "UTF8" && server != "SQL_ASCII" {
		err = fmt.Errorf("the connections of the *sql.DB have client_encoding %s, and dlock needs UTF8: "+
			"add client_encoding=UTF8 to their data source name", client)
	}
	return version, err
}

// createTables takes an advisory lock, so that only one process creates the
// tables.
func (s *store) createTables(ctx context.Context) error {
	schema := s.connector.options.schema
	db, err := s.DB()
	if err == nil {
		_, err = db.ExecContext(ctx, fmt.Sprintf("SELECT pg_catalog.pg_advisory_xact_lock(%d);\n%s", lockForSchema, Statements(schema)))
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

func (s *store) Begin(ctx context.Context, timeout time.Duration) (b session.Begun, err error) {
	o := s.connector.options
	var wait, rest, grace int64
	err = s.query(ctx, s.texts.begin, []any{s.id, timeout.Seconds(), o.Grace.Seconds(), o.EmptyNew}, func(scan func(...any) error) error {
		return scan(&wait, &rest, &b.Generation, &grace)
	})
	b.Wait, b.Rest = time.Duration(wait)*time.Millisecond, time.Duration(rest)*time.Millisecond
	longest := time.Duration(grace) * time.Millisecond
	if err == nil {
		s.Graced(ctx, "postgres", &s.connector.graces, o.OwnGrace(), longest)
	}
	return b, err
}

func ignore(func(...any) error) error { return nil }

func (s *store) Beat(ctx context.Context) (time.Duration, error) {
	var millis sql.NullInt64
	err := s.querySpare(ctx, s.texts.beat, []any{s.id}, func(scan func(...any) error) error { return scan(&millis) })
	if err = sqlstore.IfKnown(millis.Valid, err); err == nil && millis.Int64 < 0 {
		err = session.ErrLost
	}
	err = s.Beaten(ctx, err, missing)
	return time.Duration(millis.Int64) * time.Millisecond, err
}

func (s *store) Expire(ctx context.Context) (ended bool, err error) {
	err = s.one(ctx, &ended, s.texts.expire)
	return ended, err
}

func (s *store) Tidy(ctx context.Context) (more bool, err error) {
	err = s.one(ctx, &more, s.texts.tidy)
	return more, err
}

func (s *store) End(ctx context.Context) error {
	defer s.Close()
	return s.query(ctx, s.texts.end, []any{s.id}, ignore)
}

func (s *store) Do(ctx context.Context, c session.Change) (r session.Result, err error) {
	err = s.generation.Send(func(generation int64) (err error) {
		switch c.Kind {
		case session.Create:
			r, err = s.create(ctx, generation, c)
		case session.Delete:
			err = s.change(ctx, generation, s.texts.remove, c.Queue, c.Place.Token, c.Cause.String()[:1])
		case session.Replace:
			err = s.change(ctx, generation, s.texts.replace, c.Queue, c.Place.Token, c.Prefix)
		case session.Remove:
			err = s.change(ctx, generation, s.texts.removeAny, c.Queue, c.Place.Name, c.Place.Token)
		case session.SetValue:
			err = s.change(ctx, generation, s.texts.setValue, c.Queue, c.Place.Token, c.Data)
		}
		return err
	})
	return r, err
}

func (s *store) create(ctx context.Context, generation int64, c session.Change) (r session.Result, err error) {
	if s.Listening(c.Queue, false) {
		r.Announced = session.Every
	}
	var status string
	var token, created sql.NullInt64
	var list []byte
	args := []any{s.id, generation, c.Queue, c.Prefix, notNull(c.Data)}
	err = s.query(ctx, s.texts.append, args, func(scan func(...any) error) error {
		return scan(&status, &token, &created, &list)
	})
	if err == nil {
		err = sqlstore.StatusError(status)
	}
	var ahead [][2]string // names and proofs
	if err == nil && list != nil {
		err = json.Unmarshal(list, &ahead)
	}
	for _, n := range ahead {
		r.Nodes = append(r.Nodes, session.Node{Name: n[0], Proof: n[1]})
	}
	own := driver.Node{Name: driver.FormatName(c.Prefix, token.Int64), Seq: token.Int64}
	r.Place, r.Created = driver.Place{Node: own, Token: own.Seq}, time.UnixMicro(created.Int64)
	r.Nodes = append(r.Nodes, session.Node{Name: own.Name, Token: own.Seq})
	return r, err
}

// notNull replaces nil by an empty slice, because pgx sends nil as NULL.
func notNull(data []byte) []byte { return append([]byte{}, data...) }

func (s *store) Value(ctx context.Context, queue string) (value []byte, token int64, err error) {
	known := true
	var number sql.NullInt64
	var text sql.NullString
	err = s.query(ctx, s.texts.value, []any{s.id, queue}, func(scan func(...any) error) error { return scan(&known, &number, &text) })
	if err = s.Known(known, err, missing); err == nil {
		value, err = hex.DecodeString(text.String)
	}
	return value, number.Int64, err
}

func (s *store) Cancel(ctx context.Context, creates []session.Change) error {
	data := make([][]byte, len(creates))
	for i, c := range creates {
		data[i] = notNull(c.Data)
	}
	return s.change(ctx, s.generation.Raise(), s.texts.cancel, data)
}

func (s *store) Look(ctx context.Context, ask []session.Query) ([]session.Snapshot, error) {
	queues, versions := make([]string, len(ask)), make([]int64, len(ask))
	for i, q := range ask {
		queues[i], versions[i] = q.Queue, q.Known
	}
	known, found := true, make([]session.Snapshot, len(ask))
	err := s.querySpare(ctx, s.texts.look, []any{s.id, queues, versions}, func(scan func(...any) error) error {
		var at, version, token int64
		var name, proof sql.NullString
		if err := scan(&known, &at, &version, &name, &token, &proof); err != nil {
			return err
		}
		now := &found[at-1]
		now.Version, now.Same = version, version == versions[at-1]
		if name.Valid {
			now.Nodes = append(now.Nodes, session.Node{Name: name.String, Token: token, Proof: proof.String})
		}
		return nil
	})
	return found, s.Known(known, err, missing)
}

func (s *store) Read(ctx context.Context, queue, name string) (info driver.NodeInfo, err error) {
	known := true
	var token, created, left sql.NullInt64
	var data sql.NullString
	err = s.query(ctx, s.texts.read, []any{s.id, queue, name}, func(scan func(...any) error) error {
		return scan(&known, &token, &data, &info.Owner, &created, &left)
	})
	over := s.Observing && info.Owner != "" && left.Int64 <= 0 // expired, but still in the database
	if err = s.Known(known, err, missing); err == nil && (over || !token.Valid) {
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

func (s *store) Walk(ctx context.Context, prefix string) (queues []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, sqlstore.Limit(s.connector.options.Timeout))
	defer cancel()
	known := true
	err = s.query(ctx, s.texts.walk, []any{s.id, prefix}, func(scan func(...any) error) error {
		var queue sql.NullString
		if err := scan(&known, &queue); err != nil {
			return err
		}
		if queue.Valid {
			queues = append(queues, queue.String)
		}
		return nil
	})
	return queues, s.Known(known, err, missing)
}

func (s *store) Close() {
	s.listener.close()
	s.Pool.Close()
}

// Format keeps the password out of the output of every verb.
func (s *store) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "postgres store of "+s.connector.server())
}
