package leakcheck

import (
	"os"
	"os/exec"
	"os/signal"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// playVariable makes the test binary one whose only test leaves something behind.
const playVariable = "LEAKCHECK_PLAY"

// plays are what a test leaves behind.
var plays = map[string]func(){
	"nothing":              func() {},
	"a goroutine":          func() { go staysForEver(make(chan int)) },
	"one that ends soon":   func() { go time.Sleep(300 * time.Millisecond) },
	"a signal":             func() { signal.Notify(make(chan os.Signal, 1), os.Interrupt) },
	"a timer":              func() { time.AfterFunc(time.Hour, func() {}) },
	"a failure and a leak": func() { go staysForEver(make(chan int)) },
}

func staysForEver(c chan int) { <-c }

func TestMain(m *testing.M) {
	if name := os.Getenv(playVariable); name != "" {
		plays[name]()
		if name == "a goroutine" {
			patience = 100 * time.Millisecond
		}
		code := 0
		if name == "a failure and a leak" {
			code = 3
		}
		os.Exit(After(code))
	}
	os.Exit(After(m.Run()))
}

func play(t *testing.T, name string) (code int, said string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), playVariable+"="+name)
	out, _ := cmd.CombinedOutput()
	return cmd.ProcessState.ExitCode(), string(out)
}

func TestAGoroutineThatIsLeftFailsTheBinary(t *testing.T) {
	code, said := play(t, "a goroutine")
	assert.Equal(t, 1, code)
	assert.Contains(t, said, "leakcheck: 1 goroutines are left")
	assert.Contains(t, said, "leakcheck.staysForEver(")
}

func TestWhatEndsSoonOrCannotEndIsNoLeak(t *testing.T) {
	for _, name := range []string{"nothing", "one that ends soon", "a signal", "a timer"} {
		code, said := play(t, name)
		assert.Zero(t, code, "%s: %s", name, said)
	}
}

func TestAFailureIsReportedAsItIs(t *testing.T) {
	code, said := play(t, "a failure and a leak")
	assert.Equal(t, 3, code)
	assert.Empty(t, said)
}
