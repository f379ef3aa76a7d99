// Package leakcheck fails a test binary whose tests leave goroutines behind.
// Every package whose tests start goroutines has a TestMain such as
//
//	func TestMain(m *testing.M) { os.Exit(leakcheck.After(m.Run())) }
package leakcheck

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// timeLimit is how long goroutines may take to exit after the last test.
var timeLimit = 10 * time.Second

// known lists functions whose goroutines tests cannot or need not end.
var known = []string{
	"os/signal.loop(",          // never ends after signal.Notify
	"os/signal.signal_recv(",   // innermost frame of the same goroutine
	"runtime/pprof.",           // go test -cpuprofile
	"runtime.ReadTrace(",       // go test -trace
	"testing.(*F).Fuzz.func",   // the fuzzing engine
	"internal/fuzz.",           // the fuzzing engine
	"runtime.ensureSigM.func1", // listens for signals
}

// After returns the exit code for a test binary whose tests ended with the
// given code. If that is 0, After waits until only the calling goroutine is
// left. If others remain after a time limit, it prints their stacks to standard
// error and returns 1. Call it last, after stopping everything the tests share.
func After(code int) int {
	if code != 0 {
		return code // failed tests may leave goroutines
	}
	left := others()
	for end := time.Now().Add(timeLimit); len(left) > 0 && time.Now().Before(end); left = others() {
		time.Sleep(5 * time.Millisecond)
	}
	if len(left) == 0 {
		return 0
	}
	fmt.Fprintf(os.Stderr, "leakcheck: %d goroutines are left after the last test:\n\n%s\n", len(left), strings.Join(left, "\n\n"))
	return 1
}

func others() []string {
	stacks := strings.Split(strings.TrimSpace(all()), "\n\n")
	return slices.DeleteFunc(stacks[1:], func(stack string) bool {
		return slices.ContainsFunc(known, func(name string) bool { return strings.Contains(stack, "\n"+name) })
	})
}

func all() string {
	for size := 1 << 16; ; size *= 2 {
		buf := make([]byte, size)
		if n := runtime.Stack(buf, true); n < size {
			return string(buf[:n])
		}
	}
}
