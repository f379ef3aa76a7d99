package mysqltest

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

var mariadb = testenv.Store{
	Dependency: testenv.Dependency{
		Name:     "a real MariaDB",
		Variable: "DLOCK_TEST_MYSQL",
		Install:  "apt-get install -y --no-install-recommends mariadb-server, or its programs on the PATH",
	},
	Package: "mysqltest",
	Find: func() error {
		return testenv.OnPath(program("mariadb-install-db"), program("mariadbd"), program("mariadb"))
	},
	Ports: 2,
	Apart: time.Second, // the driver compares start times in whole seconds
}

// See the methods of [testenv.Store].
var (
	Require      = mariadb.Require
	RequireClock = mariadb.RequireClock
	Main         = mariadb.Main
)

const galera = "/usr/lib/galera/libgalera_smm.so" // as in Debian's package galera-4

// RequireGalera is like [Require], but also requires Galera.
func RequireGalera(t testing.TB) {
	t.Helper()
	Require(t)
	_, err := os.Stat(galera)
	mariadb.Dependency.Require(t, err)
}

// program finds a MariaDB program, which Debian installs outside most users'
// PATH.
func program(name string) string {
	if path, err := exec.LookPath("/usr/sbin/" + name); err == nil {
		return path
	}
	return name
}

// Every server has this user, with all rights.
const (
	superuser = "dlock"
	password  = "correct-horse"
)

// Option configures a server.
type Option func(*settings)

type settings struct {
	config []string // name=value
	tls    *testenv.Pair
	clock  bool
	galera bool
}

// WithConfig sets server options, such as "max_connections=20". The server
// writes its log at every commit (innodb_flush_log_at_trx_commit=1) but does
// not wait for the disk, because tests kill processes but not machines.
// Benchmarks should set "innodb_flush_method=O_DIRECT".
func WithConfig(lines ...string) Option {
	return func(s *settings) { s.config = append(s.config, lines...) }
}

// WithTLS makes the server offer TLS with the given certificate.
func WithTLS(server testenv.Pair) Option {
	return func(s *settings) { s.tls = &server }
}

// WithClock enables [testenv.Server.SetClock]. Call [RequireClock] first.
func WithClock() Option {
	return func(s *settings) { s.clock = true }
}

// WithGalera makes the server the only member of a Galera cluster. Call
// [RequireGalera] first.
func WithGalera() Option {
	return func(s *settings) { s.galera = true }
}

// Server is a MariaDB server for a test. It listens on a loopback port and
// requires a password.
type Server struct{ testenv.Server }

// Start starts a server and waits until it is ready. It is killed and its
// directory removed when the test ends.
func Start(t testing.TB, opts ...Option) *Server {
	t.Helper()
	return &Server{mariadb.Start(t, configure(opts))}
}

// Shared returns the server shared by all tests of a binary. Each test must use
// its own database (see [Server.Database]), and must not stop the server.
func Shared(t testing.TB) *Server {
	t.Helper()
	return &Server{mariadb.Shared(t, configure(nil))}
}

func configure(opts []Option) testenv.Configure {
	return func(s *testenv.Server, _ []*testenv.Server) (command []string, ready func() bool) {
		var c settings
		for _, opt := range opts {
			opt(&c)
		}
		me, err := user.Current() // MariaDB needs --user to run as root
		s.Must(err)
		// A server that starts removes the tables that it finds in its
		// temporary directory.
		data, temp := s.File("data"), s.File("tmp")
		s.Must(os.Mkdir(temp, 0o700))
		s.Run("env", "TMPDIR="+temp, program("mariadb-install-db"), "--no-defaults", "--user="+me.Username, "--datadir="+data,
			"--auth-root-authentication-method=normal", "--skip-test-db", "--innodb-flush-method=nosync")
		users := s.Write("users.sql", fmt.Sprintf("ALTER USER root@localhost ACCOUNT LOCK;\n"+
			"CREATE USER IF NOT EXISTS %[1]s@'%%' IDENTIFIED BY '%[2]s';\nGRANT ALL ON *.* TO %[1]s@'%%' WITH GRANT OPTION;\n", superuser, password))
		if c.clock {
			command = s.ClockCommand()
		}
		command = append(command, program("mariadbd"), "--no-defaults", "--user="+me.Username, "--datadir="+data, "--port="+strconv.Itoa(s.Port(0)),
			"--bind-address=127.0.0.1", "--socket="+s.File("socket"), "--pid-file="+s.File("pid"), "--init-file="+users,
			"--skip-name-resolve", "--tmpdir="+temp)
		config := append([]string{"max_connections=300", "innodb_buffer_pool_size=32M", "innodb_log_file_size=16M",
			"innodb_flush_method=nosync"}, c.config...)
		if c.tls != nil {
			config = append(config, "ssl_cert="+c.tls.Cert, "ssl_key="+c.tls.Key)
		}
		if c.galera {
			config = append(config, "binlog_format=ROW", "innodb_autoinc_lock_mode=2", "wsrep_on=ON", "wsrep_provider="+galera, "wsrep_cluster_address=gcomm://",
				"wsrep_provider_options=gmcast.listen_addr=tcp://"+testenv.Loopback(s.Port(1)))
		}
		for _, line := range config {
			command = append(command, "--"+line)
		}
		return command, func() bool {
			pid, err := os.ReadFile(s.File("pid"))
			return err == nil && strings.TrimSpace(string(pid)) == strconv.Itoa(s.Pid()) && greets(s.Addr())
		}
	}
}

// greets reports whether the server sends the first packet of a connection.
func greets(addr string) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, err = io.ReadFull(conn, make([]byte, 5))
	return err == nil
}

// DSN returns a data source name for a database, with a user who has all
// rights. It appends params, such as "session_timeout=1s". If these set
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
	s.T.Helper()
	name := s.Unique("t")
	s.SQL(s.T, "", "CREATE DATABASE "+name)
	return name
}

// SQL runs statements with the mariadb client and returns the resulting rows,
// without headers and with a tab between columns. The name of the database may
// be empty.
func (s *Server) SQL(t testing.TB, database, statements string) string {
	t.Helper()
	args := []string{"--no-defaults", "--batch", "--skip-column-names", "--host=127.0.0.1", "--port=" + strconv.Itoa(s.Port(0)), "--user=" + superuser}
	if database != "" {
		args = append(args, "--database="+database)
	}
	cmd := exec.Command(program("mariadb"), args...)
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
	cmd := exec.Command(program("mariadb-dump"), "--no-defaults", "--routines", "--host=127.0.0.1", "--port="+strconv.Itoa(s.Port(0)), "--user="+superuser, database)
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
	r := Start(t, append(opts, WithConfig("log_bin=binlog", "log_slave_updates=ON", "server_id="+strconv.Itoa(s.Port(0))))...)
	r.Follow(t, s)
	return r
}

// Follow makes the server a read-only replica of primary, and waits until it
// has caught up.
func (s *Server) Follow(t testing.TB, primary *Server) {
	t.Helper()
	s.SQL(t, "", "SET GLOBAL read_only = 1; CHANGE MASTER TO master_host='127.0.0.1', master_port="+strconv.Itoa(primary.Port(0))+
		", master_user='"+superuser+"', master_password='"+password+"', master_use_gtid=slave_pos; START SLAVE")
	position := primary.SQL(t, "", "SELECT @@gtid_binlog_pos")
	if got := s.SQL(t, "", "SELECT MASTER_GTID_WAIT('"+position+"', 300)"); got != "0" {
		t.Fatalf("the replica has not caught up: %s", got)
	}
}

// Promote makes a replica a primary.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	s.SQL(t, "", "STOP SLAVE; RESET SLAVE ALL; SET GLOBAL read_only = 0")
}
