package testenv

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Store describes what all servers of one store have in common.
type Store struct {
	Dependency
	Package string        // package that starts the servers; appears in messages
	Find    func() error  // the error says what is not installed
	Ports   int           // ports per server; 0 means one
	User    string        // server user if tests run as root
	Apart   time.Duration // minimum time between two starts of a server

	mu     sync.Mutex
	shared *process // guarded by mu; nil until started
}

// Configure writes the files of s, one of the servers that start together. It
// returns the command line, and a function that reports whether s answers,
// rather than another server on the same port.
type Configure func(s *Server, all []*Server) (command []string, ready func() bool)

// Server is a server process of a store. Its methods fail the test on an error,
// and so must be called from the test's goroutine.
type Server struct {
	*process // common to all Servers that [Store.Shared] returns
	T        testing.TB
}

// Require skips the test if the store is not installed. If the environment
// requires the store, Require fails the test instead: see [Dependency.Require].
// The functions that start servers call it.
func (st *Store) Require(t testing.TB) {
	t.Helper()
	st.Dependency.Require(t, st.Find())
}

// Start starts a server and waits until it is ready. It is killed and its
// directory removed when the test ends.
func (st *Store) Start(t testing.TB, configure Configure) Server {
	t.Helper()
	return *st.StartAll(t, 1, configure)[0]
}

// StartAll starts n servers at the same time, because those of an ensemble wait
// for each other. Each call of configure sees the ports of all servers. If
// another program takes a port, StartAll begins again.
func (st *Store) StartAll(t testing.TB, n int, configure Configure) []*Server {
	t.Helper()
	st.Require(t)
	all := st.startAll(t, n, configure)
	t.Cleanup(func() { _ = Each(all, (*Server).close) }) // a failure only leaves a directory behind
	return all
}

func (st *Store) startAll(t testing.TB, n int, configure Configure) []*Server {
	t.Helper()
	for {
		all, err := st.tryAll(t, n, configure)
		if err == nil {
			return all
		}
		if !errors.Is(err, ErrPortTaken) {
			t.Fatal(err)
		}
	}
}

func (st *Store) tryAll(t testing.TB, n int, configure Configure) (all []*Server, err error) {
	t.Helper()
	started := false
	defer func() {
		if !started {
			_ = Each(all, (*Server).close)
		}
	}()
	for range n {
		dir, err := os.MkdirTemp("", st.Package+"-")
		s := &Server{&process{store: st, dir: dir}, t}
		s.Must(err)
		all = append(all, s)
		for range max(st.Ports, 1) {
			port, err := FreePort()
			s.Must(err)
			s.ports = append(s.ports, port)
		}
	}
	for _, s := range all {
		var command []string
		command, s.ready = configure(s, all)
		s.Must(s.own())
		s.supervisor, err = newSupervisor(s.dir, s.asUser(command))
		s.Must(err)
	}
	err = Each(all, (*Server).launch)
	started = err == nil
	return all, err
}

// Shared returns a server that all tests of a binary share. The first call
// starts it. If the start fails, the test fails, and the next call tries again.
// Tests must not stop the server.
func (st *Store) Shared(t testing.TB, configure Configure) Server {
	t.Helper()
	st.Require(t)
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.shared == nil {
		st.shared = st.startAll(t, 1, configure)[0].process
	}
	return Server{st.shared, t}
}

// Main runs the tests, stops the shared server if there is one, and returns the
// exit code of the test binary:
//
//	func TestMain(m *testing.M) { os.Exit(redistest.Main(m)) }
//
// If the server does not stop, Main prints the error and does not return 0.
// Without Main, nobody waits until the server has stopped.
func (st *Store) Main(m *testing.M) int {
	code := m.Run()
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.shared == nil {
		return code
	}
	if err := st.shared.close(); err != nil {
		fmt.Fprintf(os.Stderr, "%s: shared server: %v\n", st.Package, err)
		return max(code, 1)
	}
	return code
}

// Each calls f for all servers at the same time, and returns all errors.
func Each[S any](servers []S, f func(S) error) (err error) {
	errs := make(chan error)
	for _, s := range servers {
		go func() { errs <- f(s) }()
	}
	for range servers {
		err = errors.Join(err, <-errs)
	}
	return err
}

// Kill kills the server and its child processes with SIGKILL, as in a crash. Its
// data is kept.
func (s Server) Kill() {
	s.T.Helper()
	s.Must(s.kill())
}

// Stop stops the server with SIGTERM. Its data is kept.
func (s Server) Stop() {
	s.T.Helper()
	s.Must(s.stop())
}

// Restart starts the server with the same ports and data, after killing it if
// necessary, and waits until it answers. In an ensemble, it may rejoin the
// others only later.
func (s Server) Restart() {
	s.T.Helper()
	s.Must(s.restart())
}

// Pause stops the server and its child processes with SIGSTOP until
// [Server.Resume]. Its connections stay open.
func (s Server) Pause() {
	s.T.Helper()
	s.Must(s.signal(pause))
}

// Resume ends [Server.Pause].
func (s Server) Resume() {
	s.T.Helper()
	s.Must(s.signal(resume))
}

func (s Server) Must(err error) {
	s.T.Helper()
	if err != nil {
		s.T.Fatal(err)
	}
}

// Addr returns the address of the server's first port, as host:port.
func (s Server) Addr() string { return Loopback(s.ports[0]) }

func (s Server) Port(i int) int { return s.ports[i] }

func (s Server) Dir() string { return s.dir }

// File returns the path of a file in the server's directory.
func (s Server) File(name string) string { return filepath.Join(s.dir, name) }

// Write writes a file in the server's directory, and returns its path.
func (s Server) Write(name, text string) string {
	s.T.Helper()
	s.Must(os.WriteFile(s.File(name), []byte(text), 0o600))
	return s.File(name)
}

// Copy copies a file into the server's directory, and returns the copy's path.
func (s Server) Copy(file string) string {
	s.T.Helper()
	text, err := os.ReadFile(file)
	s.Must(err)
	return s.Write(filepath.Base(file), string(text))
}

// Accepts reports whether the server accepts connections on one of its ports.
func (s Server) Accepts(i int) bool {
	conn, err := net.DialTimeout("tcp", Loopback(s.ports[i]), time.Second)
	if err == nil {
		conn.Close()
	}
	return err == nil
}

// Run runs a program as the server's user, after making that user the owner of
// all files in the server's directory.
func (s Server) Run(program string, args ...string) {
	s.T.Helper()
	s.Must(s.own())
	command := s.asUser(append([]string{program}, args...))
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = s.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		s.T.Fatalf("%s: %s: %v\n%s", s.store.Package, program, err, out)
	}
}

// Unique returns a name that no other test gets from this server: the prefix
// and a number.
func (s Server) Unique(prefix string) string { return fmt.Sprint(prefix, s.names.Add(1)) }
