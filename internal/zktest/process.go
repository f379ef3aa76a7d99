package zktest

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// readyWithin bounds the start of one server: half a second on an idle
// machine, far more where several test binaries share two cores.
const readyWithin = 90 * time.Second

// errPortTaken says that somebody else got one of the ports between their choice and their use.
var errPortTaken = errors.New("port taken")

// process is one server: its directory, its ports, its keeper. It knows no test.
type process struct {
	dir        string
	ready      func(*process) bool
	port       int
	securePort int
	keeper     *keeper

	mu      sync.Mutex
	pid     int // 0 while the server is down
	chroots int

	asking  sync.Mutex // one four-letter word at a time, so that they can be counted
	words   int64      // asked since the server started, as far as the server counted them
	ignored int64      // packets before the server was ready
}

// newProcess writes the configuration; it starts nothing.
func newProcess(s *settings) (_ *process, err error) {
	home, err := installed()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "zktest-")
	if err != nil {
		return nil, err
	}
	p := &process{dir: dir, ready: (*process).serving}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	if err := p.configure(s); err != nil {
		return nil, err
	}
	p.keeper, err = newKeeper(dir, p.command(home, s))
	return p, err
}

// command starts the server with a small heap and without the slow compiler: a test's server
// does not live long enough to earn more.
func (p *process) command(home installation, s *settings) []string {
	var command []string
	if s.preload != "" {
		command = p.slowDiskCommand(s.preload)
	}
	command = append(command, home.java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:+UseSerialGC", superuserFlag())
	command = append(command, "-D"+tmpdirProperty+p.dir)
	command = append(command, logFlags(p.dir)...)
	command = append(command, s.jvm...)
	return append(command, "-cp", home.classPath, "org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(p.dir, "zoo.cfg"))
}

func (p *process) configure(s *settings) (err error) {
	if p.port, err = portFrom(s, "clientPort"); err != nil {
		return err
	}
	if s.tls {
		if p.securePort, err = portFrom(s, "secureClientPort"); err != nil {
			return err
		}
	}
	data := filepath.Join(p.dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	if id := s.config["myid"]; id != "" {
		if err := os.WriteFile(filepath.Join(data, "myid"), []byte(id), 0o600); err != nil {
			return err
		}
		delete(s.config, "myid")
	}
	s.config["dataDir"] = data
	if err := configureLogs(p.dir); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(p.dir, "zoo.cfg"), []byte(s.file()), 0o600)
}

func portFrom(s *settings, key string) (int, error) {
	port, err := freePort()
	s.config[key] = strconv.Itoa(port)
	return port, err
}

// launch starts the server and waits until p.ready says so. The error matches errPortTaken
// if trying again with other ports would help.
func (p *process) launch() error {
	logged := len(p.logFrom(0))
	pid, err := p.keeper.start()
	if err != nil {
		return err
	}
	p.setPid(pid)
	deadline := time.Now().Add(readyWithin)
	for !p.ready(p) {
		if err := p.startupFault(logged, deadline); err != nil {
			return errors.Join(err, p.kill())
		}
		time.Sleep(10 * time.Millisecond)
	}
	for {
		err := p.startCounting()
		if !os.IsTimeout(err) || time.Now().After(deadline) {
			return err
		}
	}
}

// startupFault returns why the server will not get ready, or nil. Of the log it
// reads what the server has written since its start, from offset logged on.
//
// The log may end in the middle of what the server has to say. So the reason is
// looked for only once the process has ended, if it says that it ends.
func (p *process) startupFault(logged int, deadline time.Time) error {
	log := p.logFrom(logged)
	if bindFailed(log) {
		return errPortTaken
	}
	if strings.Contains(log, "exiting abnormally") || strings.Contains("\n"+log, "\nError: ") {
		if err := p.keeper.await(); err != nil {
			return err
		}
		if log = p.logFrom(logged); bindFailed(log) {
			return errPortTaken
		}
		return fmt.Errorf("zktest: the server did not start:\n%s", log)
	}
	if time.Now().After(deadline) {
		return fmt.Errorf("zktest: the server was not ready within %v:\n%s", readyWithin, log)
	}
	return nil
}

// bindFailed reports whether a log says that another process has one of the ports.
func bindFailed(log string) bool {
	return strings.Contains(log, "BindException") || strings.Contains(log, "Address already in use")
}

// serving reports whether this very server answers: whoever else may have got
// the port has another data directory.
func (p *process) serving() bool {
	conf, err := p.poll("conf")
	return err == nil && strings.Contains(conf, p.dir+string(filepath.Separator)) && p.secureServing()
}

// secureServing: the TLS port is opened after the plain one.
func (p *process) secureServing() bool {
	if p.securePort == 0 {
		return true
	}
	conn, err := net.DialTimeout("tcp", loopback(p.securePort), time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// listening reports whether this very server answers, before it has found the
// other servers of its ensemble. Such a server does not say conf, but says envi.
func (p *process) listening() bool {
	envi, err := p.poll("envi")
	return err == nil && strings.Contains(envi, tmpdirProperty+p.dir+"\n")
}

// tmpdirProperty sets the server's directory for temporary files, which tells the
// servers apart.
const tmpdirProperty = "java.io.tmpdir="

// logFrom returns the server's log from an offset on. A log that cannot be read
// counts as empty.
func (p *process) logFrom(offset int) string {
	text, _ := os.ReadFile(filepath.Join(p.dir, "log"))
	return string(text[min(offset, len(text)):])
}

func (p *process) kill() error {
	p.setPid(0)
	return p.keeper.kill()
}

func (p *process) stop() error {
	p.setPid(0)
	return p.keeper.stop()
}

func (p *process) setPid(pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pid = pid
}

func (p *process) signal(send func(pid int) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid == 0 {
		return errors.New("zktest: the server is down")
	}
	return send(p.pid)
}
