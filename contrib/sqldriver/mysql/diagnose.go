package mysql

import (
	"context"
	"crypto/tls"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/session"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/diagnose"
)

// Diagnose implements [driver.Diagnoser].
func (c *connector) Diagnose(ctx context.Context, report func(driver.Finding)) error {
	quiet := &connector{config: c.config, db: c.db, options: c.options, database: c.database, warned: true}
	st := diagnose.Store{
		Connector: quiet, Timeout: c.options.timeout, Grace: max(c.options.timeout, c.options.grace), Local: "the *sql.DB of this program", Explain: explainDiagnosis,
		Inspect: func(ctx context.Context, ds driver.Session, report func(driver.Finding)) {
			ds.(*session.Session).Store().(*store).inspect(ctx, report)
		},
		Remove: func(ctx context.Context, ds driver.Session, queue string) error {
			return ds.(*session.Session).Store().(*store).removeQueue(ctx, queue)
		},
	}
	if c.config == nil {
		return diagnose.Run(ctx, st, report)
	}
	st.Password = c.config.Passwd != ""
	if c.config.Net == "unix" {
		st.Local = "the socket " + c.config.Addr
		return diagnose.Run(ctx, st, report)
	}
	st.Hosts = []string{c.config.Addr}
	if c.config.TLS != nil {
		st.TLS = func(string) (*tls.Config, error) {
			config, err := configOf(c)
			if err != nil {
				return nil, err
			}
			return config.TLS.Clone(), nil
		}
		st.StartTLS, st.OptionalTLS = startTLS, c.config.AllowFallbackToPlaintext
	}
	return diagnose.Run(ctx, st, report)
}

// Capability flags of the protocol: see "Capabilities Flags" in the
// documentation of MySQL's client/server protocol.
const (
	protocol41       = 1 << 9
	capableOfTLS     = 1 << 11
	secureConnection = 1 << 15
)

// startTLS reads the server's greeting and sends an SSLRequest.
func startTLS(conn net.Conn) error {
	var head [4]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return err
	}
	greeting := make([]byte, int(head[0])|int(head[1])<<8|int(head[2])<<16)
	if len(greeting) == 0 || len(greeting) > 1<<12 {
		return errNotMySQL
	}
	if _, err := io.ReadFull(conn, greeting); err != nil {
		return err
	}
	if greeting[0] == 0xff && len(greeting) > 3 {
		return fmt.Errorf("the server refuses connections: error %d", binary.LittleEndian.Uint16(greeting[1:]))
	}
	end := 1
	for end < len(greeting) && greeting[end] != 0 {
		end++ // the version
	}
	// The capability flags follow the thread ID, the first part of the salt,
	// and a zero byte.
	flags := end + 1 + 4 + 8 + 1
	if greeting[0] != 10 || len(greeting) < flags+2 {
		return errNotMySQL
	}
	if binary.LittleEndian.Uint16(greeting[flags:])&capableOfTLS == 0 {
		return diagnose.ErrNoTLS
	}
	request := []byte{32, 0, 0, 1}
	request = binary.LittleEndian.AppendUint32(request, protocol41|capableOfTLS|secureConnection)
	request = binary.LittleEndian.AppendUint32(request, 1<<24-1) // the longest packet
	request = append(request, 45)                                // utf8mb4
	_, err := conn.Write(append(request, make([]byte, 23)...))
	return err
}

var errNotMySQL = errors.New("the greeting is not that of MySQL or MariaDB")

func explainDiagnosis(err error) (check driver.Check, advice string) {
	if errors.As(err, new(*unusableError)) {
		return driver.CheckSettings, "change the setting, or use another server, such as the primary of this replica"
	}
	switch number(err) {
	case 1045, 1698, 1129, 1130:
		return driver.CheckLogin, "correct the user and the password of the data source name, or the hosts from which the server lets the user connect"
	case 1049:
		return driver.CheckLogin, "create the database, or correct its name in the data source name"
	case 1040, 1203, 1226:
		return driver.CheckLogin, "raise the limit of connections of the server or of the user, or close other clients"
	case 1290, 1792, 1836:
		return driver.CheckSettings, "use the primary server: this one is read-only"
	case 1054, 1146, 1305, 1318:
		return driver.CheckRights, "let an operator compare the tables and procedures with those of mysql.Statements"
	}
	if denied(err) {
		return driver.CheckRights, "let an operator run the statements of the message, or those of mysql.Statements"
	}
	return "", ""
}

// removeQueue deletes the row of a queue in the same way as dlock_tidy, so that
// a later queue of this name continues with higher tokens.
func (s *store) removeQueue(ctx context.Context, queue string) error {
	name := "X'" + hex.EncodeToString([]byte(queue)) + "'"
	in := quote(s.database) + "."
	return markError(ctx, s.use(ctx, func(conn *sql.Conn) error {
		for _, text := range []string{
			"UPDATE " + in + "dlock_meta m, " + in + "dlock_queue q SET m.floor = GREATEST(m.floor, q.last) WHERE m.one = 1 AND q.name = " + name,
			"DELETE FROM " + in + "dlock_queue WHERE name = " + name,
		} {
			if _, err := conn.ExecContext(ctx, text); err != nil {
				return err
			}
		}
		return nil
	}))
}

// fewConnections is the number of free connections below which a diagnosis
// warns. One client opens up to that many by default.
const fewConnections = session.DefaultConnections

func (s *store) inspect(ctx context.Context, report func(driver.Finding)) {
	settings, err := s.settings(ctx)
	var found []driver.Finding
	if err == nil {
		found = weaknesses(settings)
		found = append(found, s.checkState(ctx)...)
	} else {
		found = []driver.Finding{{Check: driver.CheckSettings, Level: driver.Unknown, Text: "the server does not show its settings: " + err.Error(),
			Advice: "make sure that the server is the primary, and that its binlog_format is not STATEMENT"}}
	}
	if len(found) == 0 {
		found = []driver.Finding{{Check: driver.CheckSettings, Text: "version " + settings["version"]}}
	}
	for _, f := range found {
		report(f)
	}
	report(s.inspectSequences(ctx))
}

// checkState warns if the server is short of free connections or has replicas.
// Not every server shows all of these numbers.
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
	most, known := state["max_connections"]
	if left := most - state["Threads_connected"]; known && left < fewConnections {
		found = append(found, driver.Finding{Check: driver.CheckSettings, Level: driver.Warning,
			Text:   fmt.Sprintf("the server accepts %d more connections", max(left, 0)),
			Advice: fmt.Sprintf("raise max_connections: each client uses up to %d", session.DefaultConnections)})
	}
	if state["Slaves_connected"] > 0 {
		found = append(found, driver.Finding{Check: driver.CheckSettings, Level: driver.Warning,
			Text:   "the server has replicas: if one is promoted while this server still answers its clients, a lock may have two holders",
			Advice: "stop this server, or make it read-only, before a replica is promoted, or check fencing tokens"})
	}
	return found
}

// mostToken is the greatest token that fits into a node name.
const mostToken int64 = 1e18 - 1

// inspectSequences checks how close the highest token is to mostToken. Tokens
// are the server's clock in microseconds, unless the clock was once set ahead.
func (s *store) inspectSequences(ctx context.Context) driver.Finding {
	f := driver.Finding{Check: driver.CheckSequences}
	var last int64
	in := quote(s.database) + "."
	err := s.query(ctx, "SELECT GREATEST(floor, COALESCE((SELECT MAX(last) FROM "+in+"dlock_queue), 0)) FROM "+in+"dlock_meta",
		func(scan func(...any) error) error { return scan(&last) })
	switch {
	case err != nil:
		f.Level, f.Text, f.Advice = driver.Unknown, err.Error(), "try again when the server is less busy"
	case last > mostToken-mostToken/10:
		f.Level, f.Text = driver.Warning, fmt.Sprintf("a token of %d is used, of at most %d", last, mostToken)
		f.Advice = "use another database for all clients"
	default:
		f.Text = fmt.Sprintf("room for %d more nodes", mostToken-last)
	}
	return f
}
