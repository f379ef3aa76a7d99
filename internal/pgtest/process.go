package pgtest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

// Credentials of the superuser of every server.
const (
	superuser = "dlock"
	password  = "correct-horse"
)

// Option configures a server.
type Option func(*settings)

type settings struct {
	config  []string // name=value
	tls     *testenv.Pair
	clock   bool
	primary *process
}

// WithConfig sets server parameters, such as "max_connections=20". fsync is off
// by default, because tests kill only processes. Benchmarks should set
// "fsync=on".
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

// process is a running server. It is independent of a test, so its methods
// return errors instead of failing one.
type process struct {
	proc    tree
	account *account
	data    string
	port    int
	schemas atomic.Int64
}

func newProcess(opts []Option) (p *process, err error) {
	var s settings
	for _, opt := range opts {
		opt(&s)
	}
	p = new(process)
	if p.account, err = serverAccount(); err != nil {
		return nil, err
	}
	if p.port, err = testenv.FreePort(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pgtest-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	if s.primary == nil {
		err = p.initialize(dir)
	} else {
		err = p.copy(s.primary, dir)
	}
	if err != nil {
		return nil, err
	}
	command, err := p.command(dir, &s)
	if err != nil {
		return nil, err
	}
	proc, err := testenv.NewProcess(dir, command)
	p.proc = tree{proc, testenv.Loopback(p.port)}
	return p, err
}

func (p *process) initialize(dir string) error {
	initdb, err := program("initdb")
	if err != nil {
		return err
	}
	p.data = filepath.Join(dir, "data")
	secret := filepath.Join(dir, "password")
	if err := os.WriteFile(secret, []byte(scramSecret()), 0o600); err != nil {
		return err
	}
	if err := p.account.own(dir); err != nil {
		return err
	}
	args := p.account.command(initdb, "-D", p.data, "-U", superuser, "--pwfile="+secret, "-A", "scram-sha-256", "-E", "UTF8", "--locale=C", "--no-sync")
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pgtest: initdb: %w\n%s", err, out)
	}
	return nil
}

// copy creates the data directory of a standby server from its primary.
func (p *process) copy(primary *process, dir string) error {
	backup, err := program("pg_basebackup")
	if err != nil {
		return err
	}
	if err := p.account.own(dir); err != nil {
		return err
	}
	p.data = filepath.Join(dir, "data")
	args := p.account.command(backup, "-D", p.data, "-R", "-c", "fast", "--no-sync",
		"-d", fmt.Sprintf("postgres://%s:%s@127.0.0.1:%d/", superuser, password, primary.port))
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pgtest: pg_basebackup: %w\n%s", err, out)
	}
	return nil
}

// scramSecret returns the password as PostgreSQL stores it (RFC 5803), with a
// single hash iteration: the usual 4096 are slow under the race detector, and
// tests open many connections.
func scramSecret() string {
	salt := "0123456789abcdef"
	mac := func(key []byte, text string) []byte {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
	salted := mac([]byte(password), salt+"\x00\x00\x00\x01")
	stored := sha256.Sum256(mac(salted, "Client Key"))
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$1:%s$%s:%s", encode([]byte(salt)), encode(stored[:]), encode(mac(salted, "Server Key")))
}

func (p *process) command(dir string, s *settings) ([]string, error) {
	postgres, err := program("postgres")
	if err != nil {
		return nil, err
	}
	args := []string{postgres, "-D", p.data, "-p", strconv.Itoa(p.port), "-h", "127.0.0.1", "-k", dir}
	config := append([]string{"max_connections=300", "shared_buffers=64MB", "fsync=off", "dynamic_shared_memory_type=mmap"}, s.config...)
	if s.tls != nil {
		if err := p.copyTLS(dir, s.tls); err != nil {
			return nil, err
		}
		config = append(config, "ssl=on", "ssl_cert_file="+filepath.Join(dir, "server.crt"), "ssl_key_file="+filepath.Join(dir, "server.key"))
	}
	for _, line := range config {
		args = append(args, "-c", line)
	}
	if s.clock {
		clock, err := testenv.ClockCommand(dir)
		if err != nil {
			return nil, err
		}
		if err := p.account.own(dir); err != nil {
			return nil, err
		}
		args = append(clock, args...)
	}
	return p.account.command(args...), nil
}

// copyTLS copies the certificate and key, because PostgreSQL refuses a key that
// belongs to another user.
func (p *process) copyTLS(dir string, pair *testenv.Pair) error {
	for from, to := range map[string]string{pair.Cert: "server.crt", pair.Key: "server.key"} {
		text, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, to), text, 0o600); err != nil {
			return err
		}
	}
	return p.account.own(dir)
}

// launch starts the server and waits until it accepts connections. After an
// error that matches [testenv.ErrPortTaken] the caller should retry with other
// ports.
func (p *process) launch() error {
	return p.proc.Start(testenv.Startup{
		Ready:     p.ready,
		PortTaken: func(log string) bool { return strings.Contains(log, "Address already in use") },
		Exiting: func(log string) bool {
			// A child process of the killed server may linger for a
			// moment.
			return strings.Contains(log, "is still in use") ||
				strings.Contains(log, "FATAL:  ") && strings.Contains(log, "database system is shut down")
		},
	})
}

// ready reports whether the server accepts connections. It reads
// postmaster.pid, whose first line is the process ID and whose eighth is the
// state.
func (p *process) ready() bool {
	text, err := os.ReadFile(filepath.Join(p.data, "postmaster.pid"))
	lines := strings.Split(string(text), "\n")
	return err == nil && len(lines) > 7 && lines[0] == strconv.Itoa(p.proc.Pid()) && strings.TrimSpace(lines[7]) == "ready"
}

// relaunch restarts the server after a kill. It retries, because child
// processes of the killed one may linger.
func (p *process) relaunch() (err error) {
	for range 100 {
		if err = p.launch(); err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return err
}
