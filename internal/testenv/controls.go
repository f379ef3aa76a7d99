package testenv

import "testing"

// Controls are what a test does to its server, and end the test if that fails.
// The servers of most stores embed them.
type Controls struct {
	t      testing.TB
	proc   *Process
	launch func() error
}

// NewControls returns the controls of a server. The function launch starts it on
// its old ports, and waits until it answers.
func NewControls(t testing.TB, proc *Process, launch func() error) Controls {
	return Controls{t, proc, launch}
}

// Kill ends the server with SIGKILL, like a crash. Its data stays for
// [Controls.Restart].
func (c Controls) Kill() {
	c.t.Helper()
	c.Must(c.proc.Kill())
}

// Stop ends the server with SIGTERM. Its data stays for [Controls.Restart].
func (c Controls) Stop() {
	c.t.Helper()
	c.Must(c.proc.Stop())
}

// Restart starts the server again with the same ports and data, and returns when
// it answers. If the server still runs, Restart kills it first. A member of an
// ensemble may need more time to find the others.
func (c Controls) Restart() {
	c.t.Helper()
	c.Must(c.TryRestart())
}

// TryRestart is like [Controls.Restart], but returns an error instead of ending
// the test. So any goroutine may call it.
func (c Controls) TryRestart() error {
	if err := c.proc.Kill(); err != nil {
		return err
	}
	return RetrySamePorts(c.launch)
}

// Pause stops the server's process with SIGSTOP: its connections stay open, and
// it answers nothing. [Controls.Resume] ends the pause.
func (c Controls) Pause() {
	c.t.Helper()
	c.Must(c.proc.Pause())
}

// Resume ends [Controls.Pause].
func (c Controls) Resume() {
	c.t.Helper()
	c.Must(c.proc.Resume())
}

// Log returns what the server has written so far.
func (c Controls) Log() string { return c.proc.Log(0) }

// Must ends the test if err is not nil.
func (c Controls) Must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}
