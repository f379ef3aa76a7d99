package mysql

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/sqlstore"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

var _ driver.Checker = (*connector)(nil)

func (c *connector) Check(ctx context.Context) ([]driver.Finding, error) {
	quiet := &connector{config: c.config, db: c.db, options: c.options, database: c.database, warned: true}
	return session.Check(ctx, quiet, adviceOn, func(st session.Store) []driver.Finding {
		return append(st.(*store).checkSettings(ctx), st.(*store).checkSequences(ctx))
	})
}

func adviceOn(err error) string {
	switch number(err) {
	case 1290, 1792, 1836:
		return "use the primary server: this one is read-only"
	case 1054, 1146, 1305, 1318:
		return "let an operator compare the tables and procedures with those of mysql.Statements"
	}
	switch {
	case errors.As(err, new(*unusableError)):
		return "change the setting, or use another server, such as the primary of this replica"
	case denied(err):
		return "let an operator run the statements of the message, or those of mysql.Statements"
	}
	return ""
}

func (s *store) checkSettings(ctx context.Context) []driver.Finding {
	settings, err := s.settings(ctx)
	if err != nil {
		return []driver.Finding{{Level: driver.Unknown, Text: "the server does not show its settings: " + err.Error(),
			Advice: "make sure that the server is the primary, and that its binlog_format is not STATEMENT"}}
	}
	found := append(weaknesses(settings), s.checkState(ctx)...)
	if len(found) == 0 {
		found = []driver.Finding{{Text: "version " + settings["version"]}}
	}
	return found
}

const oldest = `SELECT trx_mysql_thread_id, TIMESTAMPDIFF(SECOND, trx_started, NOW())
	FROM information_schema.innodb_trx WHERE trx_mysql_thread_id > 0 ORDER BY trx_started LIMIT 1`

// checkState skips a check if the query for its figures fails.
func (s *store) checkState(ctx context.Context) (found []driver.Finding) {
	state := make(map[string]int)
	for _, text := range []string{"SHOW GLOBAL STATUS WHERE Variable_name IN ('Threads_connected', 'Slaves_connected')",
		"SHOW GLOBAL VARIABLES WHERE Variable_name = 'max_connections'"} {
		_ = s.query(ctx, text, func(scan func(...any) error) error {
			var name, value string
			err := scan(&name, &value)
			if n, bad := strconv.Atoi(value); bad == nil {
				state[name] = n
			}
			return err
		})
	}
	left := math.MaxInt
	if most, known := state["max_connections"]; known {
		left = most - state["Threads_connected"]
	}
	found = s.Pool.Check(s.connector.options.OwnGrace(), left, func(row func(func(...any) error) error) error {
		return s.query(ctx, oldest, row)
	})
	if state["Slaves_connected"] > 0 {
		found = append(found, driver.Finding{Level: driver.Warning,
			Text:   "the server has replicas: if one is promoted while this server still answers its clients, a lock may have two holders",
			Advice: "stop this server, or make it read-only, before a replica is promoted, or check fencing tokens"})
	}
	return found
}

// checkSequences checks how close the highest token is to sqlstore.MostToken.
func (s *store) checkSequences(ctx context.Context) (f driver.Finding) {
	var last int64
	in := quote(s.database) + "."
	err := s.query(ctx, "SELECT GREATEST(floor, COALESCE((SELECT MAX(last) FROM "+in+"dlock_queue), 0)) FROM "+in+"dlock_meta",
		func(scan func(...any) error) error { return scan(&last) })
	switch {
	case err != nil:
		f.Level, f.Text, f.Advice = driver.Unknown, err.Error(), "try again when the server is less busy"
	case last > sqlstore.MostToken-sqlstore.MostToken/10:
		f.Level, f.Text = driver.Warning, fmt.Sprintf("a token of %d is used, of at most %d", last, sqlstore.MostToken)
		f.Advice = "use another database for all clients"
	default:
		f.Text = fmt.Sprintf("room for %d more nodes", sqlstore.MostToken-last)
	}
	return f
}
