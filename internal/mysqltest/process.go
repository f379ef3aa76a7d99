package mysqltest

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

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
// not wait for the disk, because tests kill only processes. Benchmarks should
// set "innodb_flush_method=O_DIRECT".
func WithConfig(lines ...string) Option {
	return func(s *settings) { s.config = append(s.config, lines...) }
}

// WithTLS makes the server offer TLS with the given certificate.
func WithTLS(server testenv.Pair) Option {
	return func(s *settings) { s.tls = &server }
}

// WithClock enables [Server.SetClock]. Call [RequireClock] first.
func WithClock() Option {
	return func(s *settings) { s.clock = true }
}

// WithGalera makes the server the only member of a Galera cluster. Call
// [RequireGalera] first.
func WithGalera() Option {
	return func(s *settings) { s.galera = true }
}

// process is a running server. It is independent of a test, so its methods
// return errors instead of failing one.
type process struct {
	proc      *testenv.Process
	dir       string
	port      int
	databases atomic.Int64
	started   time.Time // of the latest launch
}

func newProcess(opts []Option) (p *process, err error) {
	var s settings
	for _, opt := range opts {
		opt(&s)
	}
	p = new(process)
	if p.port, err = testenv.FreePort(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "mysqltest-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir) // p may be nil here
		}
	}()
	p.dir = dir
	if err := p.initialize(); err != nil {
		return nil, err
	}
	command, err := p.command(&s)
	if err != nil {
		return nil, err
	}
	p.proc, err = testenv.NewProcess(p.dir, command)
	return p, err
}

// initialize creates the data directory and the test user.
func (p *process) initialize() error {
	install, err := program("mariadb-install-db")
	if err != nil {
		return err
	}
	me, err := user.Current()
	if err != nil {
		return err
	}
	// The server runs as the current user, which may be root.
	args := []string{"--no-defaults", "--user=" + me.Username, "--datadir=" + p.data(), "--auth-root-authentication-method=normal",
		"--skip-test-db", "--innodb-flush-method=nosync"}
	if err := os.Mkdir(p.temp(), 0o700); err != nil {
		return err
	}
	cmd := exec.Command(install, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+p.temp())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mysqltest: mariadb-install-db: %w\n%s", err, out)
	}
	users := fmt.Sprintf("ALTER USER root@localhost ACCOUNT LOCK;\n"+
		"CREATE USER IF NOT EXISTS %[1]s@'%%' IDENTIFIED BY '%[2]s';\nGRANT ALL ON *.* TO %[1]s@'%%' WITH GRANT OPTION;\n", superuser, password)
	return os.WriteFile(p.users(), []byte(users), 0o600)
}

func (p *process) data() string    { return filepath.Join(p.dir, "data") }
func (p *process) users() string   { return filepath.Join(p.dir, "users.sql") }
func (p *process) pidFile() string { return filepath.Join(p.dir, "pid") }

// temp returns the directory for the server's temporary files. Servers must not
// share it, because a starting one removes the tables that it finds there.
func (p *process) temp() string { return filepath.Join(p.dir, "tmp") }

func (p *process) command(s *settings) ([]string, error) {
	server, err := program("mariadbd")
	if err != nil {
		return nil, err
	}
	me, err := user.Current()
	if err != nil {
		return nil, err
	}
	args := []string{server, "--no-defaults", "--user=" + me.Username, "--datadir=" + p.data(), "--port=" + strconv.Itoa(p.port),
		"--bind-address=127.0.0.1", "--socket=" + filepath.Join(p.dir, "socket"), "--pid-file=" + p.pidFile(), "--init-file=" + p.users(),
		"--skip-name-resolve", "--tmpdir=" + p.temp()}
	config := append([]string{"max_connections=300", "innodb_buffer_pool_size=32M", "innodb_log_file_size=16M",
		"innodb_flush_method=nosync"}, s.config...)
	if s.tls != nil {
		config = append(config, "ssl_cert="+s.tls.Cert, "ssl_key="+s.tls.Key)
	}
	if s.galera {
		port, err := testenv.FreePort()
		if err != nil {
			return nil, err
		}
		config = append(config, "binlog_format=ROW", "innodb_autoinc_lock_mode=2", "wsrep_on=ON", "wsrep_provider="+galera, "wsrep_cluster_address=gcomm://",
			"wsrep_provider_options=gmcast.listen_addr=tcp://"+testenv.Loopback(port))
	}
	for _, line := range config {
		args = append(args, "--"+line)
	}
	if s.clock {
		clock, err := testenv.ClockCommand(p.dir)
		return append(clock, args...), err
	}
	return args, nil
}

// launch starts the server and waits until it accepts connections. After an
// error that matches [testenv.ErrPortTaken] the caller should retry with other
// ports. It leaves a second between two starts, because the driver tells them
// apart by that.
func (p *process) launch() error {
	time.Sleep(time.Until(p.started.Add(time.Second)))
	p.started = time.Now()
	return p.proc.Start(testenv.Startup{
		Ready:     p.ready,
		PortTaken: func(log string) bool { return strings.Contains(log, "Address already in use") },
		Exiting:   func(log string) bool { return strings.Contains(log, "[ERROR] Aborting") },
	})
}

// ready reports whether the server has written its process ID and greets
// clients.
func (p *process) ready() bool {
	text, err := os.ReadFile(p.pidFile())
	if err != nil || strings.TrimSpace(string(text)) != strconv.Itoa(p.proc.Pid()) {
		return false
	}
	conn, err := net.DialTimeout("tcp", testenv.Loopback(p.port), time.Second)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, err = io.ReadFull(conn, make([]byte, 5))
	return err == nil
}
