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
	logged := len(p.log())
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
	return p.startCounting()
}

// startupFault returns why there is no point in waiting for the server any longer. What it has logged before
// is left out.
func (p *process) startupFault(logged int, deadline time.Time) error {
	log := p.log()[logged:]
	switch {
	case strings.Contains(log, "BindException"), strings.Contains(log, "Address already in use"):
		return errPortTaken
	case strings.Contains(log, "exiting abnormally"), strings.Contains("\n"+log, "\nError: "):
		err := p.keeper.await() // else the reason may not be in the log yet
		return errors.Join(err, fmt.Errorf("zktest: the server did not start:\n%s", p.log()[logged:]))
	case time.Now().After(deadline):
		return fmt.Errorf("zktest: the server was not ready within %v:\n%s", readyWithin, log)
	}
	return nil
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

// listening is for a server of an ensemble, which serves only once it has found the others.
func (p *process) listening() bool {
	_, err := p.poll("ruok")
	return err == nil
}

func (p *process) log() string {
	text, _ := os.ReadFile(filepath.Join(p.dir, "log"))
	return string(text)
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
