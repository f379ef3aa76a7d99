package postgres

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/session"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/diagnose"
)

// Diagnose implements [driver.Diagnoser].
func (c *connector) Diagnose(ctx context.Context, report func(driver.Finding)) error {
	st := diagnose.Store{
		Connector: c, Timeout: c.options.timeout, Grace: max(c.options.timeout, c.options.grace), Local: "the *sql.DB of this program", Explain: explainDiagnosis,
		Inspect: func(ctx context.Context, ds driver.Session, report func(driver.Finding)) {
			ds.(*session.Session).Store().(*store).inspect(ctx, report)
		},
		Remove: func(ctx context.Context, ds driver.Session, queue string) error {
			s := ds.(*session.Session).Store().(*store)
			return s.query(ctx, inSchema(`DELETE FROM dlock.queue WHERE name = $1`, c.options.schema), []any{queue}, ignore)
		},
	}
	if c.config != nil {
		c.describeNetwork(&st)
	}
	return diagnose.Run(ctx, st, report)
}

// describeNetwork adds the hosts of the data source name. pgx lists a host
// twice if it may connect both with and without TLS.
func (c *connector) describeNetwork(st *diagnose.Store) {
	st.Password = c.config.Password != ""
	secure := make(map[string]*tls.Config)
	for _, h := range append([]*pgconn.FallbackConfig{{Host: c.config.Host, Port: c.config.Port, TLSConfig: c.config.TLSConfig}}, c.config.Fallbacks...) {
		network, addr := pgconn.NetworkAddress(h.Host, h.Port)
		if network == "unix" {
			st.Local = "the socket " + addr
			continue
		}
		if !slices.Contains(st.Hosts, addr) {
			st.Hosts = append(st.Hosts, addr)
		}
		if h.TLSConfig != nil {
			secure[h.Host] = h.TLSConfig
		} else {
			st.OptionalTLS = true
		}
	}
	if len(secure) == 0 {
		return
	}
	st.TLS = func(host string) (*tls.Config, error) {
		if config := secure[host]; config != nil {
			return config.Clone(), nil
		}
		return nil, fmt.Errorf("the data source name has no TLS for %s", host)
	}
	if c.config.SSLNegotiation != "direct" {
		st.StartTLS = startTLS
	}
}

// startTLS sends an SSLRequest: see "SSL Session Encryption" in the PostgreSQL
// manual.
func startTLS(conn net.Conn) error {
	request := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, 8), 80877103)
	if _, err := conn.Write(request); err != nil {
		return err
	}
	var answer [1]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return err
	}
	switch answer[0] {
	case 'S':
		return nil
	case 'N':
		return diagnose.ErrNoTLS
	}
	return errors.New("the answer is not that of PostgreSQL")
}

func explainDiagnosis(err error) (check driver.Check, advice string) {
	var server *pgconn.PgError
	switch errors.As(err, &server); {
	case server == nil && strings.Contains(err.Error(), "standby mode"):
		return driver.CheckSettings, "use the address of the primary server, or of several servers: the driver finds the primary among them"
	case server == nil:
		return "", ""
	case strings.HasPrefix(server.Code, "28"):
		return driver.CheckLogin, "correct the user and the password of the data source name, or the server's pg_hba.conf"
	case server.Code == "3D000":
		return driver.CheckLogin, "create the database, or correct its name in the data source name"
	case server.Code == "42501":
		return driver.CheckRights, "let an operator run the statements of the message, or those of postgres.Statements"
	case strings.HasPrefix(server.Code, "53"):
		return driver.CheckLogin, "raise max_connections of the server, close other clients, or free the disk"
	case server.Code == readOnly:
		return driver.CheckSettings, "use the primary server, and turn default_transaction_read_only off for this user"
	case server.Code == "0A000":
		return driver.CheckSettings, cmp.Or(server.Hint, "use a server that has this feature")
	case strings.HasPrefix(server.Code, "42"), strings.HasPrefix(server.Code, "3F"):
		return driver.CheckRights, "let an operator compare the tables and functions with those of postgres.Statements"
	}
	return "", ""
}

// fewConnections is the number of free connections below which a diagnosis
// warns. One client opens up to that many by default.
const fewConnections = session.DefaultConnections

const serverState = `SELECT current_setting('server_version'), current_setting('fsync'), current_setting('full_page_writes'),
	current_setting('synchronous_standby_names'), current_setting('synchronous_commit'), (SELECT count(*) FROM pg_stat_replication),
	current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
		- (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend')`

// serverSettings holds the columns selected by serverState.
type serverSettings struct {
	version, fsync, fullPages, synchronous, commit string
	standbys, connections                          int
}

func (s *store) inspect(ctx context.Context, report func(driver.Finding)) {
	var v serverSettings
	err := s.query(ctx, serverState, nil, func(scan func(...any) error) error {
		return scan(&v.version, &v.fsync, &v.fullPages, &v.synchronous, &v.commit, &v.standbys, &v.connections)
	})
	if err != nil {
		report(driver.Finding{Check: driver.CheckSettings, Level: driver.Unknown, Text: "the server does not show its settings: " + err.Error(),
			Advice: "make sure that fsync and full_page_writes are on"})
	} else {
		found := v.weaknesses()
		found = append(found, s.checkNotices(ctx)...)
		if len(found) == 0 {
			found = []driver.Finding{{Check: driver.CheckSettings, Text: fmt.Sprintf("PostgreSQL %s, with %d free connections", v.version, v.connections)}}
		}
		for _, f := range found {
			report(f)
		}
	}
	report(s.inspectSequences(ctx))
}

// weaknesses returns a finding for each setting of the server that weakens a
// guarantee of the lock.
func (v serverSettings) weaknesses() (found []driver.Finding) {
	warn := func(text, advice string) {
		found = append(found, driver.Finding{Check: driver.CheckSettings, Level: driver.Warning, Text: text, Advice: advice})
	}
	if v.fsync != "on" {
		warn("the server has fsync "+v.fsync+": if its machine fails, it may lose locks that are held, and grant them again", "set fsync=on")
	}
	if v.fullPages != "on" {
		warn("the server has full_page_writes "+v.fullPages+": if its machine fails, tables may be damaged", "set full_page_writes=on")
	}
	switch {
	case v.standbys == 0:
	case v.synchronous == "":
		warn("the server has asynchronous standbys: if one is promoted while this server still answers its clients, a lock may have two holders",
			"let synchronous_standby_names wait for all standbys, or stop this server before another one is promoted")
	}
	if v.connections < fewConnections {
		warn(fmt.Sprintf("the server accepts %d more connections", max(v.connections, 0)),
			fmt.Sprintf("raise max_connections: each client uses up to %d", session.DefaultConnections))
	}
	return found
}

// checkNotices reports whether notices (NOTIFY) reach a session. They do not
// through a proxy that pools transactions.
func (s *store) checkNotices(ctx context.Context) []driver.Finding {
	if !s.connector.options.notify {
		return nil
	}
	line, err := s.Listen(ctx, "dlock-doctor")
	if err == nil && line != 0 {
		return nil
	}
	return []driver.Finding{{Check: driver.CheckSettings, Level: driver.Warning,
		Text:   "notices do not arrive, as behind a proxy that pools transactions: waiting clients poll, which delays them by up to a quarter of a second",
		Advice: "let the proxy pool sessions, or connect to the server itself; or set notify=false to skip the attempt"}}
}

// mostToken is the greatest token that fits into a node name.
const mostToken int64 = 1e18 - 1

// inspectSequences checks how close the schema's counter is to mostToken.
func (s *store) inspectSequences(ctx context.Context) driver.Finding {
	f := driver.Finding{Check: driver.CheckSequences}
	least := int64(math.MaxInt64)
	var worst string
	err := s.query(ctx, `SELECT sequencename::text, last_value, max_value FROM pg_sequences WHERE schemaname = $1`, []any{s.connector.options.schema},
		func(scan func(...any) error) error {
			var name string
			var last sql.NullInt64 // null if the sequence is unused or unreadable
			var most int64
			err := scan(&name, &last, &most)
			if name == "counter" {
				most = min(most, mostToken)
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
	case least < mostToken/10:
		f.Level, f.Text = driver.Warning, fmt.Sprintf("the sequence %s.%s has room for %d more values", s.connector.options.schema, worst, least)
		f.Advice = "use another schema for all clients"
	default:
		f.Text = fmt.Sprintf("room for %d more nodes", least)
	}
	return f
}
