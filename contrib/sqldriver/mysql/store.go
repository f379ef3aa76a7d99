package mysql

import (
	"context"
	crand "crypto/rand"
	"database/sql"
	sqldriver "database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqlstore"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// store is the database as one session sees it.
type store struct {
	connector *connector
	config    *mysql.Config // for connections that the session opens itself
	*sqlstore.Pool
	id         string
	generation sqlstore.Generation
	database   string // set by Open
}

var _ sqlstore.Store = (*store)(nil)

func newStore(c *connector) *store {
	s := &store{connector: c, id: crand.Text(), database: c.database}
	if c.config != nil {
		s.database = c.config.DBName
		s.config = configOf(c)
	}
	s.Pool = sqlstore.NewPool(c.db, c.options.Connections, c.options.Timeout, s.open)
	return s
}

// hexArray is a procedure argument sent as a JSON array of hex-encoded strings.
type hexArray []string

// callText returns the text of a CALL. Hex encoding keeps arguments from ending
// their literals.
func callText(database, procedure string, args []any) string {
	b := append([]byte("CALL "), quote(database)...)
	b = append(append(append(b, '.'), procedure...), '(')
	for i, arg := range args {
		if i > 0 {
			b = append(b, ", "...)
		}
		switch a := arg.(type) {
		case string:
			b = append(hex.AppendEncode(append(b, "X'"...), []byte(a)), '\'')
		case []byte:
			b = append(hex.AppendEncode(append(b, "X'"...), a), '\'')
		case int64:
			b = strconv.AppendInt(b, a, 10)
		case bool:
			b = strconv.AppendBool(b, a)
		case hexArray:
			b = append(b, "'["...)
			for i, s := range a {
				if i > 0 {
					b = append(b, ',')
				}
				b = append(hex.AppendEncode(append(b, '"'), []byte(s)), '"')
			}
			b = append(b, "]'"...)
		default:
			panic(fmt.Sprintf("mysql: argument of type %T", arg))
		}
	}
	return string(append(b, ')'))
}

// call retries a procedure that was rolled back because of a conflict with
// another transaction.
func (s *store) call(ctx context.Context, procedure string, args []any, row func(scan func(...any) error) error) error {
	text := callText(s.database, procedure, args)
	for tries := 1; ; tries++ {
		err := s.query(ctx, text, row)
		if tries == maxTries || !slices.Contains(again, number(err)) || !pause(ctx, tries) {
			return markError(ctx, err)
		}
	}
}

const maxTries = 8

// pause sleeps for a random time, whose bound doubles with each try.
func pause(ctx context.Context, tries int) bool {
	return session.Sleep(ctx, rand.N(time.Millisecond<<tries))
}

// query closes the connection after an error that may leave a transaction open.
func (s *store) query(ctx context.Context, text string, row func(scan func(...any) error) error) error {
	return s.use(ctx, func(conn *sql.Conn) error { return queryOn(ctx, conn, text, row) })
}

func (s *store) use(ctx context.Context, f func(conn *sql.Conn) error) error {
	db, err := s.DB()
	if err != nil {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return s.Busy(err)
	}
	defer conn.Close()
	err = f(conn)
	if err != nil && ctx.Err() != nil && number(err) == 0 && s.connector.config != nil {
		err = fmt.Errorf("no answer from %s: %w", s.connector.config.Addr, err)
	}
	if n := number(err); n != 0 && !slices.Contains(unchanged, n) {
		discard(conn)
	}
	return err
}

// discard closes the connection, on which a killed procedure may have left a
// transaction.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return sqldriver.ErrBadConn })
}

// queryOn reads all results, because a procedure may send an error after the
// first. Rows.Close would read them, too, but ignores ctx.
func queryOn(ctx context.Context, conn *sql.Conn, text string, row func(scan func(...any) error) error) error {
	rows, err := conn.QueryContext(ctx, text)
	if err != nil {
		return err
	}
	defer rows.Close()
	for more := true; more; more = rows.NextResultSet() {
		for rows.Next() {
			if err := row(rows.Scan); err != nil {
				return err
			}
		}
	}
	return rows.Err()
}

func (s *store) status(ctx context.Context, procedure string, args ...any) (status string, err error) {
	err = s.call(ctx, procedure, args, func(scan func(...any) error) error { return scan(&status) })
	return status, err
}

// change calls a procedure with the session ID, the generation and args.
func (s *store) change(ctx context.Context, generation int64, procedure string, args ...any) error {
	status, err := s.status(ctx, procedure, append([]any{s.id, generation}, args...)...)
	if err != nil {
		return err
	}
	return sqlstore.StatusError(status)
}

// Open implements [sqlstore.Store]. It refuses a server that can't hold locks,
// such as a read-only replica, unless the session only observes.
func (s *store) Open(ctx context.Context) error {
	if !s.Observing {
		if err := s.checkServer(ctx); denied(err) && s.database != "" {
			return s.needOperator(err, "")
		} else if err != nil {
			return err
		}
	}
	if s.database == "" {
		var name sql.NullString
		err := s.query(ctx, "SELECT DATABASE() LIMIT 1", func(scan func(...any) error) error { return scan(&name) })
		if err != nil {
			return markError(ctx, err)
		}
		if s.database = name.String; s.database == "" {
			return errors.New("the connections of the *sql.DB have no default database: set Options.Database")
		}
	}
	version, err := s.version(ctx)
	if s.Observing && (missing(err) || err == nil && version == 0) {
		return nil
	} else if missing(err) || denied(err) || err == nil && version == 0 {
		if err := s.createTables(ctx); err != nil {
			return err
		}
		if version, err = s.version(ctx); denied(err) {
			return s.needOperator(err, "")
		}
	}
	if err != nil {
		return err
	}
	return session.CheckLayout(fmt.Sprintf("the tables and routines in database %q", s.database), version, schemaVersion)
}

// version returns the tables' version, or zero if a statement that creates them
// has failed.
func (s *store) version(ctx context.Context) (version int, err error) {
	err = s.call(ctx, "dlock_open", nil, func(scan func(...any) error) error { return scan(&version) })
	return version, err
}

// MySQL commits each statement separately, so the last one records that all
// have succeeded.
func (s *store) createTables(ctx context.Context) error {
	db, err := s.DB()
	if err != nil {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return markError(ctx, err)
	}
	defer conn.Close()
	// USE and SET change the connection, so it must not return to the pool.
	defer discard(conn)
	for _, text := range append([]string{"USE " + quote(s.database), "SET SESSION autocommit = 1"}, statements()...) {
		if err := execute(ctx, conn, text); denied(err) {
			return s.needOperator(err, account(ctx, conn))
		} else if err != nil {
			return markError(ctx, err)
		}
	}
	return nil
}

// needOperator adds to err the SQL for an operator to run.
func (s *store) needOperator(err error, account string) error {
	if account == "" {
		account = "user@host"
		if s.connector.config != nil {
			account = quote(s.connector.config.User) + "@`%`"
		}
	}
	if number(err) == 1044 {
		err = fmt.Errorf("%w (is %q the right name? the server says the same of a database that is missing)", err, s.database)
	}
	return fmt.Errorf("%w\nthe user may not use the tables and procedures of dlock, or they are missing and the user may not create them. "+
		"Let an operator run:\n\n%s\n%s", err, Statements(s.database), grants(s.database, account))
}

// execute retries after a conflict with a session that creates the same table
// or procedure.
func execute(ctx context.Context, conn *sql.Conn, text string) error {
	for tries := 1; ; tries++ {
		_, err := conn.ExecContext(ctx, text)
		if tries == maxTries || !slices.Contains(again, number(err)) || !pause(ctx, tries) {
			return err
		}
	}
}

// account returns the connection's account as GRANT needs it, or "".
func account(ctx context.Context, conn *sql.Conn) string {
	var name string
	err := conn.QueryRowContext(ctx, "SELECT CURRENT_USER() LIMIT 1").Scan(&name)
	at := strings.LastIndexByte(name, '@')
	if err != nil || at < 0 {
		return ""
	}
	return quote(name[:at]) + "@" + quote(name[at+1:])
}

// demotions reads how often the server was made a replica, which may lack
// changes.
const demotions = `SHOW GLOBAL STATUS WHERE Variable_name IN ('Com_change_master', 'Com_change_replication_source')`

func (s *store) Begin(ctx context.Context, timeout time.Duration) (b session.Begun, err error) {
	var followed int64
	err = s.query(ctx, demotions, func(scan func(...any) error) error {
		var name string
		var n int64
		err := scan(&name, &n)
		followed += n
		return err
	})
	if err != nil {
		return b, markError(ctx, err)
	}
	o := s.connector.options
	var status string
	var grace, wait, rest int64
	args := []any{s.id, timeout.Microseconds(), o.Grace.Microseconds(), o.EmptyNew, followed}
	err = s.call(ctx, "dlock_begin", args, func(scan func(...any) error) error {
		return scan(&status, &b.Generation, &grace, &wait, &rest)
	})
	longest := time.Duration(grace) * time.Microsecond
	if status == "wait" {
		b.Wait, b.Rest = time.Duration(wait)*time.Microsecond, time.Duration(rest)*time.Microsecond
	}
	if err == nil {
		s.Graced(ctx, "mysql", &s.connector.graces, o.OwnGrace(), longest)
	}
	return b, err
}

func (s *store) Beat(ctx context.Context) (time.Duration, error) {
	var status string
	var micros int64
	err := s.call(ctx, "dlock_beat", []any{s.id}, func(scan func(...any) error) error { return scan(&status, &micros) })
	if err == nil {
		err = sqlstore.StatusError(status)
	}
	return time.Duration(micros) * time.Microsecond, s.Beaten(ctx, err, missing)
}

func (s *store) Expire(ctx context.Context) (ended bool, err error) {
	status, err := s.status(ctx, "dlock_expire")
	return status == "ok", err
}

func (s *store) Tidy(ctx context.Context) (more bool, err error) {
	err = s.call(ctx, "dlock_tidy", nil, func(scan func(...any) error) error { return scan(&more) })
	return more, err
}

func (s *store) End(ctx context.Context) error {
	defer s.Close()
	_, err := s.status(ctx, "dlock_end", s.id)
	return err
}

func (s *store) Do(ctx context.Context, c session.Change) (r session.Result, err error) {
	err = s.generation.Send(func(generation int64) (err error) {
		switch c.Kind {
		case session.Create:
			r, err = s.create(ctx, generation, c)
		case session.Delete:
			err = s.change(ctx, generation, "dlock_remove", c.Queue, c.Place.Token, c.Cause == driver.Released)
		case session.Replace:
			err = s.change(ctx, generation, "dlock_replace", c.Queue, c.Place.Token, c.Prefix)
		case session.Remove:
			err = s.change(ctx, generation, "dlock_remove_any", c.Queue, c.Place.Name, c.Place.Token)
		case session.SetValue:
			err = s.change(ctx, generation, "dlock_keep", c.Queue, c.Place.Token, c.Data)
		}
		return err
	})
	return r, err
}

func (s *store) create(ctx context.Context, generation int64, c session.Change) (r session.Result, err error) {
	var status string
	args := []any{s.id, generation, c.Queue, c.Prefix, c.Data}
	err = s.call(ctx, "dlock_append", args, func(scan func(...any) error) error {
		var name sql.NullString
		var token, own, created int64
		if err := scan(&status, &token, &name, &own, &created); err != nil {
			return err
		}
		r.Place = driver.Place{Node: driver.Node{Name: driver.FormatName(c.Prefix, token), Seq: token}, Token: token}
		if created != 0 {
			r.Created = time.UnixMicro(created)
		}
		if name.Valid {
			r.Nodes = append(r.Nodes, session.Node{Name: name.String, Token: own})
		}
		return nil
	})
	if err == nil {
		err = sqlstore.StatusError(status)
	}
	return r, err
}

func (s *store) Cancel(ctx context.Context, creates []session.Change) error {
	generation := s.generation.Raise()
	for _, c := range creates {
		if err := s.change(ctx, generation, "dlock_cancel", c.Data); err != nil {
			return err
		}
	}
	return nil
}

func (s *store) Look(ctx context.Context, ask []session.Query) ([]session.Snapshot, error) {
	queues, at := make(hexArray, len(ask)), make(map[string]int)
	for i, q := range ask {
		queues[i], at[q.Queue] = q.Queue, i
	}
	known := true
	found, last := make([]session.Snapshot, len(ask)), make([]int64, len(ask))
	procedure, args := "dlock_look", []any{s.id, queues}
	if len(ask) == 1 && ask[0].Await != "" {
		known, procedure, args = false, "dlock_await", []any{s.id, ask[0].Queue, ask[0].Own, ask[0].Await}
	}
	err := s.call(ctx, procedure, args, func(scan func(...any) error) error {
		var queue string
		var number, token int64
		var released, name sql.NullString
		if err := scan(&known, &queue, &number, &released, &name, &token); err != nil {
			return err
		}
		i := at[queue]
		found[i].Released, last[i] = released.String, number
		if name.Valid {
			found[i].Nodes = append(found[i].Nodes, session.Node{Name: name.String, Token: token})
		}
		return nil
	})
	for i, q := range ask {
		found[i].Version = digest(last[i], found[i])
		found[i].Same = found[i].Version == q.Known
	}
	return found, s.Known(known, err, missing)
}

// digest returns a number, never zero, that differs after every change of a
// queue: appends and renames raise its last token, removals change the names.
func digest(last int64, s session.Snapshot) int64 {
	h := fnv.New64a()
	fmt.Fprintln(h, last, s.Released)
	for _, n := range s.Nodes {
		fmt.Fprintln(h, n.Name)
	}
	return int64(h.Sum64() | 1)
}

func (s *store) Value(ctx context.Context, queue string) (value []byte, token int64, err error) {
	known := true
	err = s.call(ctx, "dlock_kept", []any{s.id, queue}, func(scan func(...any) error) error { return scan(&known, &token, &value) })
	return value, token, s.Known(known, err, missing)
}

func (s *store) Read(ctx context.Context, queue, name string) (info driver.NodeInfo, err error) {
	var known, there bool
	var created, left int64
	err = s.call(ctx, "dlock_read", []any{s.id, queue, name}, func(scan func(...any) error) error {
		return scan(&known, &there, &info.Token, &info.Data, &info.Owner, &created, &left)
	})
	over := s.Observing && info.Owner != "" && left <= 0 // expired, but still in the database
	if err = s.Known(known, err, missing); err == nil && (over || !there) {
		err = driver.ErrGone
	}
	if created != 0 {
		info.Created = time.UnixMicro(created)
	}
	info.SessionLeft = max(0, time.Duration(left)*time.Microsecond)
	return info, err
}

func (s *store) Walk(ctx context.Context, prefix string) (queues []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, sqlstore.Limit(s.connector.options.Timeout))
	defer cancel()
	known := true
	err = s.call(ctx, "dlock_walk", []any{s.id, prefix}, func(scan func(...any) error) error {
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

// Format keeps the password out of the output of every verb.
func (s *store) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, "mysql store of "+s.connector.server())
}
