package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

const variables = `SHOW VARIABLES WHERE Variable_name IN ('version', 'read_only', 'super_read_only', 'innodb_read_only',
	'log_bin', 'binlog_format', 'sql_safe_updates', 'wsrep_on', 'group_replication_single_primary_mode')`

// checkServer refuses unsuitable servers. Once per connector, it logs settings
// that weaken guarantees.
func (s *store) checkServer(ctx context.Context) error {
	settings, err := s.settings(ctx)
	if err != nil {
		return err
	}
	if err := unusable(settings); err != nil {
		return &unusableError{err}
	}
	c := s.connector
	c.warning.Lock()
	defer c.warning.Unlock()
	if c.warned {
		return nil
	}
	c.warned = true
	for _, f := range weaknesses(settings) {
		slog.Default().WarnContext(ctx, "mysql: "+f.Text, "server", c.server())
	}
	return nil
}

// settings returns server variables: names in lower case, values in upper case.
func (s *store) settings(ctx context.Context) (map[string]string, error) {
	settings := make(map[string]string)
	err := s.use(ctx, func(conn *sql.Conn) error {
		var limit uint64
		err := queryOn(ctx, conn, "SELECT @@sql_select_limit LIMIT 1", func(scan func(...any) error) error { return scan(&limit) })
		// A low sql_select_limit would hide variables from SHOW VARIABLES.
		if err == nil && limit < 1000 {
			defer discard(conn)
			_, err = conn.ExecContext(ctx, "SET SESSION sql_select_limit = 1000")
		}
		if err != nil {
			return err
		}
		return queryOn(ctx, conn, variables, func(scan func(...any) error) error {
			var name, value string
			err := scan(&name, &value)
			settings[strings.ToLower(name)] = strings.ToUpper(value)
			return err
		})
	})
	return settings, markError(ctx, err)
}

type unusableError struct{ error }

func (e *unusableError) Unwrap() error { return e.error }

func unusable(settings map[string]string) error {
	product, version, ok := parseVersion(settings["version"])
	least := [3]int{10, 6, 0}
	if product == "MySQL" {
		least = [3]int{8, 0, 29}
	}
	if ok && older(version, least) {
		return fmt.Errorf("the server is %s %d.%d.%d, and the driver needs %d.%d.%d or later",
			product, version[0], version[1], version[2], least[0], least[1], least[2])
	}
	for _, name := range []string{"read_only", "super_read_only", "innodb_read_only"} {
		if value, ok := settings[name]; ok && value != "OFF" && value != "0" {
			return fmt.Errorf("%w: the server has %s %s: it is a replica, or an operator has closed it for changes",
				driver.ErrUnavailable, name, value)
		}
	}
	if mode := settings["group_replication_single_primary_mode"]; mode == "OFF" || mode == "0" {
		return errors.New("the server has group_replication_single_primary_mode OFF, and several primaries have neither row locks " +
			"nor a clock in common: switch the group to one primary")
	}
	if settings["log_bin"] == "ON" && settings["binlog_format"] == "STATEMENT" {
		return errors.New("the server has binlog_format STATEMENT, which cannot record the changes of dlock: set it to ROW or MIXED")
	}
	if settings["sql_safe_updates"] == "ON" {
		return errors.New("the connections of the *sql.DB have sql_safe_updates ON, which refuses some deletions: " +
			"add sql_safe_updates=0 to their data source name")
	}
	return nil
}

func weaknesses(settings map[string]string) (found []driver.Finding) {
	if settings["wsrep_on"] == "ON" {
		found = append(found, driver.Finding{Level: driver.Warning,
			Text: "the server is a member of a Galera cluster, whose members do not share row locks: " +
				"make sure that all clients use the same member",
			Advice: "use a proxy that sends all clients of locks to one member"})
	}
	return found
}

// parseVersion splits the variable version, such as "10.11.19-MariaDB-log".
func parseVersion(text string) (product string, version [3]int, ok bool) {
	product = "MySQL"
	if strings.Contains(strings.ToUpper(text), "MARIADB") {
		product = "MariaDB"
		// MariaDB adds this prefix for old clients, and some proxies keep it.
		text = strings.TrimPrefix(text, "5.5.5-")
	}
	n, err := fmt.Sscanf(text, "%d.%d.%d", &version[0], &version[1], &version[2])
	return product, version, err == nil && n == 3
}

func older(a, b [3]int) bool {
	for i := range a {
		if a[i] != b[i] {
			return a[i] < b[i]
		}
	}
	return false
}
