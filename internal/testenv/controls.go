package testenv

import "testing"

// Controls lets a test kill, pause and restart its server. Servers of most
// stores embed it. Its methods fail the test on an error.
type Controls struct {
	t      testing.TB
	proc   controlled
	launch func() error
}

// controlled is the part of [Process] that Controls needs. It is an interface
// because some stores also have to signal child processes of the server.
type controlled interface {
	Kill() error
	Stop() error
	Pause() error
	Resume() error
	Log(offset int) string
}

// NewControls returns the controls of a server. launch starts it on its
// previous ports and waits until it is ready.
func NewControls(t testing.TB, proc controlled, launch func() error) Controls {
	return Controls{t, proc, launch}
}

// Kill kills the server with SIGKILL, as in a crash. Its data is kept.
func (c Controls) Kill() {
	c.t.Helper()
	c.Must(c.proc.Kill())
}

// Stop stops the server with SIGTERM. Its data is kept.
func (c Controls) Stop() {
	c.t.Helper()
	c.Must(c.proc.Stop())
}

// Restart starts the server with the same ports and data, after killing it if
// necessary, and waits until it answers. In an ensemble it may take longer
// until it has rejoined the others.
func (c Controls) Restart() {
	c.t.Helper()
	c.Must(c.TryRestart())
}

// TryRestart is like [Controls.Restart], but returns errors instead of failing
// the test. It may be called from any goroutine.
func (c Controls) TryRestart() error {
	if err := c.proc.Kill(); err != nil {
		return err
	}
	return RetrySamePorts(c.launch)
}

// Pause stops the server's process with SIGSTOP until [Controls.Resume]. Its
// connections stay open.
func (c Controls) Pause() {
	c.t.Helper()
	c.Must(c.proc.Pause())
}

// Resume ends [Controls.Pause].
func (c Controls) Resume() {
	c.t.Helper()
	c.Must(c.proc.Resume())
}

// Log returns the server's output so far.
func (c Controls) Log() string { return c.proc.Log(0) }

// Must fails the test if err is not nil.
func (c Controls) Must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}
