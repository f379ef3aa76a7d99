package mysqltest

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

// Server is a MariaDB server for a test. It listens on a loopback port and
// requires a password.
type Server struct {
	*process
	testenv.Controls
	t testing.TB
}

// Start starts a server and waits until it is ready. It is killed and its
// directory removed when the test ends.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	return newServer(t, servers.Start(t, func() (*process, error) { return newProcess(opts) }))
}

func newServer(t testing.TB, p *process) *Server {
	return &Server{process: p, Controls: testenv.NewControls(t, p.proc, p.launch), t: t}
}

var servers = testenv.Servers[*process]{
	Name: "mysqltest", Require: Require, Launch: (*process).launch,
	Close: func(p *process) error { return p.proc.Close() },
}

// Shared returns the server shared by all tests of a binary. Each test must use
// its own database (see [Server.Database]), and must not stop the server.
func Shared(t testing.TB) *Server {
	t.Helper()
	return newServer(t, servers.Shared(t, func() (*process, error) { return newProcess(nil) }))
}

// Main runs the tests and stops the shared server. Use it as
//
//	func TestMain(m *testing.M) { os.Exit(mysqltest.Main(m)) }
func Main(m *testing.M) int { return servers.Main(m) }

// Addr returns host:port of the server.
func (s *Server) Addr() string { return testenv.Loopback(s.port) }

// SetClock sets the server's wall clock to the machine's clock plus offset. It
// requires [WithClock].
func (s *Server) SetClock(offset time.Duration) {
	s.t.Helper()
	s.Must(testenv.SetClock(s.dir, offset))
}

// DSN returns a data source name for a database, with a user who has all
// rights. params, such as "session_timeout=1s", are appended to it. If they set
// session_timeout but not empty_is_new, DSN adds empty_is_new=true, so that an
// empty database needs no grace period.
func (s *Server) DSN(database string, params ...string) string {
	return s.DSNAt(s.Addr(), database, params...)
}

// DSNAt is like DSN for another address, such as that of a proxy.
func (s *Server) DSNAt(addr, database string, params ...string) string {
	query := strings.Join(params, "&")
	if strings.Contains(query, "session_timeout=") && !strings.Contains(query, "empty_is_new=") {
		query += "&empty_is_new=true"
	}
	return fmt.Sprintf("%s:%s@tcp(%s)/%s?%s", superuser, password, addr, database, query)
}

// Password returns the password of the user in [Server.DSN].
func (s *Server) Password() string { return password }

// Database creates an empty database and returns its unique name.
func (s *Server) Database() string {
	s.t.Helper()
	name := fmt.Sprintf("t%d", s.databases.Add(1))
	s.SQL(s.t, "", "CREATE DATABASE "+name)
	return name
}

// SQL runs statements with the mariadb client and returns the resulting rows,
// without headers and with a tab between columns. The name of the database may
// be empty.
func (s *Server) SQL(t testing.TB, database, statements string) string {
	t.Helper()
	client, err := program("mariadb")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"--no-defaults", "--batch", "--skip-column-names", "--host=127.0.0.1", "--port=" + strconv.Itoa(s.port), "--user=" + superuser}
	if database != "" {
		args = append(args, "--database="+database)
	}
	cmd := exec.Command(client, args...)
	cmd.Env = append(os.Environ(), "MYSQL_PWD="+password)
	cmd.Stdin = strings.NewReader(statements)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("mariadb: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// Dump returns SQL statements that recreate the tables of a database with all
// their rows.
func (s *Server) Dump(t testing.TB, database string) string {
	t.Helper()
	dump, err := program("mariadb-dump")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(dump, "--no-defaults", "--routines", "--host=127.0.0.1", "--port="+strconv.Itoa(s.port), "--user="+superuser, database)
	cmd.Env = append(os.Environ(), "MYSQL_PWD="+password)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("mariadb-dump: %v", err)
	}
	return string(out)
}

// Replica starts a replica of this server, which needs log_bin, and waits until
// the replica has caught up. The replica is read-only until [Server.Promote].
func (s *Server) Replica(t testing.TB, opts ...Option) *Server {
	t.Helper()
	r := Start(t, append(opts, WithConfig("log_bin=binlog", "log_slave_updates=ON", "server_id="+strconv.Itoa(s.port)))...)
	r.Follow(t, s)
	return r
}

// Follow makes the server a read-only replica of another one, and waits until it
// has the other one's data.
func (s *Server) Follow(t testing.TB, primary *Server) {
	t.Helper()
	s.SQL(t, "", "SET GLOBAL read_only = 1; CHANGE MASTER TO master_host='127.0.0.1', master_port="+strconv.Itoa(primary.port)+
		", master_user='"+superuser+"', master_password='"+password+"', master_use_gtid=slave_pos; START SLAVE")
	position := primary.SQL(t, "", "SELECT @@gtid_binlog_pos")
	if got := s.SQL(t, "", "SELECT MASTER_GTID_WAIT('"+position+"', 60)"); got != "0" {
		t.Fatalf("the replica has not caught up: %s", got)
	}
}

// Promote makes a replica a primary.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	s.SQL(t, "", "STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = 0")
}
