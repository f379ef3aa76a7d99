// Package mistakes checks the tests of a driver by planting mistakes in the
// driver, one at a time, each of which must make a test fail.
package mistakes

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var sabotage = flag.Bool("sabotage", false, "plant each mistake and check that its test fails")

// planted is the environment variable that is set while a mistake is planted.
const planted = "DLOCK_PLANTED_MISTAKE"

// Mistake holds, in this order, a name, a file, the correct text in that file,
// the wrong text that replaces it, and a pattern for the test that must then
// fail.
type Mistake [5]string

// Planted reports whether this process runs with a planted mistake.
func Planted() bool { return os.Getenv(planted) != "" }

// Timeout returns the timeout of one conformance case. It is short if a mistake is
// planted in the driver, because many cases then time out.
func Timeout() time.Duration {
	if Planted() {
		return 5 * time.Second
	}
	return 0
}

// Run checks that the correct text of each mistake occurs exactly once in its
// file. With the flag -sabotage, it also calls require, which skips or fails if
// the tests' server is not installed, and then plants each mistake and checks
// that its test in the package of t fails.
func Run(t *testing.T, require func(testing.TB), all []Mistake) {
	if Planted() {
		t.Skip("this process has a mistake already")
	}
	for _, m := range all {
		name, file, right, wrong, test := m[0], m[1], m[2], m[3], m[4]
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(text), right); n != 1 {
				t.Fatalf("%s contains %d times, and not once: %s", file, n, right)
			}
			if *sabotage {
				require(t)
				t.Parallel() // most of the time goes into waits that a mistake prolongs
				seeItFail(t, file, strings.Replace(string(text), right, wrong, 1), test)
			}
		})
	}
}

// seeItFail checks that a test fails if the file has the given text. It uses an
// overlay, so the file itself does not change.
func seeItFail(t *testing.T, file, text, test string) {
	t.Helper()
	original, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	replaced, config := filepath.Join(dir, filepath.Base(file)), filepath.Join(dir, "overlay.json")
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: replaced}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{replaced: []byte(text), config: overlay} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "go", "test", "-count=1", "-failfast", "-overlay="+config, "-run=^"+test, ".")
	command.Env = append(os.Environ(), planted+"=1")
	out, err := command.CombinedOutput()
	switch {
	case err == nil:
		t.Errorf("%s passes with the mistake:\n%s", test, out)
	case !strings.Contains(string(out), "--- FAIL: Test"):
		t.Errorf("%s did not run: %v\n%s", test, err, out)
	}
}
