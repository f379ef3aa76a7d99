package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqlstore"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

var _ driver.Checker = (*connector)(nil)

func (c *connector) Check(ctx context.Context) ([]driver.Finding, error) {
	return session.Check(ctx, c, adviceOn, func(st session.Store) []driver.Finding {
		return append(st.(*store).checkServer(ctx), st.(*store).checkSequences(ctx))
	})
}

func adviceOn(err error) string {
	var server *pgconn.PgError
	switch errors.As(err, &server); {
	case err != nil && server == nil && strings.Contains(err.Error(), "standby mode"):
		return "use the address of the primary server, or of several servers: the driver finds the primary among them"
	case server == nil:
		return ""
	case server.Code == noRight:
		return "let an operator run the statements of the message, or those of postgres.Statements"
	case server.Code == readOnly:
		return "use the primary server, and turn default_transaction_read_only off for this user"
	case server.Code == "0A000":
		return cmp.Or(server.Hint, "use a server that has this feature")
	case strings.HasPrefix(server.Code, "42"), strings.HasPrefix(server.Code, "3F"):
		return "let an operator compare the tables and functions with those of postgres.Statements"
	}
	return ""
}

// serverSettings holds the columns selected by texts.settings.
type serverSettings struct {
	version, fsync, fullPages, synchronous, commit string
	standbys, connections                          int
}

func (s *store) checkServer(ctx context.Context) []driver.Finding {
	var v serverSettings
	err := s.query(ctx, s.texts.settings, nil, func(scan func(...any) error) error {
		return scan(&v.version, &v.fsync, &v.fullPages, &v.synchronous, &v.commit, &v.standbys, &v.connections)
	})
	if err != nil {
		return []driver.Finding{{Level: driver.Unknown, Text: "the server does not show its settings: " + err.Error(),
			Advice: "make sure that fsync and full_page_writes are on"}}
	}
	found := append(v.weaknesses(), s.checkNotices(ctx)...)
	found = append(found, s.Pool.Check(s.connector.options.OwnGrace(), v.connections, func(row func(func(...any) error) error) error {
		return s.query(ctx, s.texts.oldest, nil, row)
	})...)
	if len(found) == 0 {
		found = []driver.Finding{{Text: fmt.Sprintf("PostgreSQL %s, with %d free connections", v.version, v.connections)}}
	}
	return found
}

func (v serverSettings) weaknesses() (found []driver.Finding) {
	warn := func(text, advice string) {
		found = append(found, driver.Finding{Level: driver.Warning, Text: text, Advice: advice})
	}
	if v.fsync != "on" {
		warn("the server has fsync "+v.fsync+": if its machine fails, it may lose locks that are held, and grant them again", "set fsync=on")
	}
	if v.fullPages != "on" {
		warn("the server has full_page_writes "+v.fullPages+": if its machine fails, tables may be damaged", "set full_page_writes=on")
	}
	if v.standbys > 0 && v.synchronous == "" {
		warn("the server has asynchronous standbys: if one is promoted while this server still answers its clients, a lock may have two holders",
			"let synchronous_standby_names wait for all standbys, or stop this server before another one is promoted")
	}
	return found
}

// checkNotices warns if notices do not reach a session, as behind some proxies.
func (s *store) checkNotices(ctx context.Context) []driver.Finding {
	if !s.connector.options.notify {
		return nil
	}
	const queue = "dlock-check"
	if s.listener.listen(ctx, queue); s.Listening(queue, false) {
		return nil
	}
	return []driver.Finding{{Level: driver.Warning,
		Text:   "notices do not arrive, as behind a proxy that pools transactions: waiting clients poll, which delays them by up to a quarter of a second",
		Advice: "let the proxy pool sessions, or connect to the server itself; or set notify=false to skip the attempt"}}
}

// checkSequences warns if a sequence of the schema has few values left.
func (s *store) checkSequences(ctx context.Context) (f driver.Finding) {
	least := int64(math.MaxInt64)
	var worst string
	err := s.query(ctx, s.texts.sequences, []any{s.connector.options.schema},
		func(scan func(...any) error) error {
			var name string
			var last sql.NullInt64 // null if the sequence is unused or unreadable
			var most int64
			err := scan(&name, &last, &most)
			if name == "counter" {
				most = min(most, sqlstore.MostToken)
			}
			if left := most - last.Int64; left < least {
				least, worst = left, name
			}
			return err
		})
	switch {
	case err != nil:
		f.Level, f.Text, f.Advice = driver.Unknown, err.Error(), "try again when the server is less busy"
	case worst == "":
		f.Level, f.Text = driver.Unknown, "the schema shows no sequence"
		f.Advice = "let an operator look at pg_sequences"
	case least < sqlstore.MostToken/10:
		f.Level, f.Text = driver.Warning, fmt.Sprintf("the sequence %s.%s has room for %d more values", s.connector.options.schema, worst, least)
		f.Advice = "use another schema for all clients"
	default:
		f.Text = fmt.Sprintf("room for %d more nodes", least)
	}
	return f
}
