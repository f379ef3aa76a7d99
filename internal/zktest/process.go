package zktest

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/internal/testenv"
)

// process is a server that does not depend on a test: its methods return errors
// instead of failing one.
type process struct {
	proc       *testenv.Process
	ready      func(*process) bool
	port       int
	securePort int

	mu      sync.Mutex
	chroots int

	asking sync.Mutex // guards wordsSent; held while a four-letter word is unanswered
	// wordsSent is the number of four-letter words sent since startCounting.
	// The server counts them as packets, so requests subtracts them.
	wordsSent int64
	ignored   int64 // packets received before startCounting
}

// newProcess creates a server's directory and configuration, but does not start
// it.
func newProcess(s *settings) (_ *process, err error) {
	home, err := installed()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "zktest-")
	if err != nil {
		return nil, err
	}
	p := &process{ready: (*process).serving}
	defer func() {
		if err != nil {
			os.RemoveAll(dir)
		}
	}()
	if err := p.configure(s, dir); err != nil {
		return nil, err
	}
	command, err := command(home, s, dir)
	if err != nil {
		return nil, err
	}
	p.proc, err = testenv.NewProcess(dir, command)
	return p, err
}

// command returns the server's command line. It limits the heap and disables
// the optimizing compiler, from which a server for one test would not benefit.
func command(home installation, s *settings, dir string) (command []string, err error) {
	if s.slowDisk {
		if command, err = testenv.SlowDiskCommand(dir); err != nil {
			return nil, err
		}
	}
	if s.clock {
		clock, err := testenv.ClockCommand(dir)
		if err != nil {
			return nil, err
		}
		command = append(clock, command...)
	}
	command = append(command, home.java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:+UseSerialGC", superuserFlag())
	command = append(command, "-D"+tmpdirProperty+dir)
	command = append(command, logFlags(dir)...)
	command = append(command, s.jvm...)
	return append(command, "-cp", home.classPath, "org.apache.zookeeper.server.quorum.QuorumPeerMain", filepath.Join(dir, "zoo.cfg")), nil
}

func (p *process) configure(s *settings, dir string) (err error) {
	if p.port, err = portFrom(s, "clientPort"); err != nil {
		return err
	}
	if s.tls {
		if p.securePort, err = portFrom(s, "secureClientPort"); err != nil {
			return err
		}
	}
	data := filepath.Join(dir, "data")
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
	if err := configureLogs(dir); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "zoo.cfg"), []byte(s.file()), 0o600)
}

func portFrom(s *settings, key string) (int, error) {
	port, err := testenv.FreePort()
	s.config[key] = strconv.Itoa(port)
	return port, err
}

// launch starts the server and waits until it is ready. After an error that
// matches [testenv.ErrPortTaken] the caller should retry with other ports.
func (p *process) launch() error {
	deadline := time.Now().Add(testenv.ReadyWithin)
	err := p.proc.Start(testenv.Startup{Ready: func() bool { return p.ready(p) }, PortTaken: bindFailed, Exiting: exiting})
	if err != nil {
		return err
	}
	for {
		err := p.startCounting()
		if !os.IsTimeout(err) || time.Now().After(deadline) {
			return err
		}
	}
}

func exiting(log string) bool {
	return strings.Contains(log, "exiting abnormally") || strings.Contains("\n"+log, "\nError: ")
}

func bindFailed(log string) bool {
	return strings.Contains(log, "BindException") || strings.Contains(log, "Address already in use")
}

// serving reports whether this server serves clients. It compares the data
// directory, because another server may be answering on the same port.
func (p *process) serving() bool {
	conf, err := p.poll("conf")
	return err == nil && strings.Contains(conf, p.proc.Dir()+string(filepath.Separator)) && p.secureServing()
}

// secureServing reports whether the TLS port is open, which the server opens
// last. Without a TLS port, it returns true.
func (p *process) secureServing() bool {
	if p.securePort == 0 {
		return true
	}
	conn, err := net.DialTimeout("tcp", testenv.Loopback(p.securePort), time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// listening reports whether this server answers four-letter words. A server
// without a quorum answers "envi" but not "conf".
func (p *process) listening() bool {
	envi, err := p.poll("envi")
	return err == nil && strings.Contains(envi, tmpdirProperty+p.proc.Dir()+"\n")
}

// tmpdirProperty is the Java property for the server's temporary directory. It
// identifies the server in listening.
const tmpdirProperty = "java.io.tmpdir="
