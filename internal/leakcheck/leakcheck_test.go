package leakcheck

import (
	"os"
	"os/exec"
	"os/signal"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// scenarioVariable makes the test binary leave something behind instead of
// running the tests.
const scenarioVariable = "LEAKCHECK_SCENARIO"

var scenarios = map[string]func(){
	"nothing":              func() {},
	"a goroutine":          func() { go staysForEver(make(chan int)) },
	"one that ends soon":   func() { go time.Sleep(300 * time.Millisecond) },
	"a signal":             func() { signal.Notify(make(chan os.Signal, 1), os.Interrupt) },
	"a timer":              func() { time.AfterFunc(time.Hour, func() {}) },
	"a failure and a leak": func() { go staysForEver(make(chan int)) },
}

func staysForEver(c chan int) { <-c }

func TestMain(m *testing.M) {
	if name := os.Getenv(scenarioVariable); name != "" {
		scenarios[name]()
		if name == "a goroutine" {
			timeLimit = 100 * time.Millisecond
		}
		code := 0
		if name == "a failure and a leak" {
			code = 3
		}
		os.Exit(After(code))
	}
	os.Exit(After(m.Run()))
}

func runScenario(t *testing.T, name string) (code int, output string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), scenarioVariable+"="+name)
	out, _ := cmd.CombinedOutput()
	return cmd.ProcessState.ExitCode(), string(out)
}

func TestAGoroutineThatIsLeftFailsTheBinary(t *testing.T) {
	code, output := runScenario(t, "a goroutine")
	assert.Equal(t, 1, code)
	assert.Contains(t, output, "leakcheck: 1 goroutines are left")
	assert.Contains(t, output, "leakcheck.staysForEver(")
}

func TestWhatEndsSoonOrCannotEndIsNoLeak(t *testing.T) {
	for _, name := range []string{"nothing", "one that ends soon", "a signal", "a timer"} {
		code, output := runScenario(t, name)
		assert.Zero(t, code, "%s: %s", name, output)
	}
}

func TestAFailureIsReportedAsItIs(t *testing.T) {
	code, output := runScenario(t, "a failure and a leak")
	assert.Equal(t, 3, code)
	assert.Empty(t, output)
}
