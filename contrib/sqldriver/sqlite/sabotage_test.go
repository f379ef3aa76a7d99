package sqlite

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var sabotage = flag.Bool("sabotage", false, "put each mistake in and see that its test fails")

// TestEachMistakeIsSeen makes deliberate mistakes in a copy of the driver. For each
// one it names the test that fails. Without the flag -sabotage it only checks that the
// code which it would change is there.
func TestEachMistakeIsSeen(t *testing.T) {
	for _, m := range []struct{ name, file, right, wrong, test string }{
		{"a power cut takes tokens back", "schema.go",
			"SET last = reserved, reserved = reserved + ?", "SET reserved = reserved + ?",
			"TestAPowerCutBringsNoTokenBack"},
		{"no session knows that it is the first one", "presence_unix.go",
			"return how == syscall.LOCK_EX, err", "return false, err",
			"TestAPowerCutBringsNoTokenBack"},
		{"tokens are reserved without waiting for the disk", "conn.go",
			"err := d.exec(ctx, sqlDurable)", "err := d.exec(ctx, sqlUndurable)",
			"TestACommitThatReservesTokensWaitsForTheDisk"},
		{"a dead process keeps its session", "presence_unix.go",
			"return flock(f, syscall.LOCK_SH) == nil", "return false",
			"TestAKilledProcessLosesItsLockAtOnce/a_client_that_only_tries"},
		{"a missing file is taken for a death", "presence_unix.go",
			"if err != nil {\n\t\treturn false\n\t}\n\tdefer f.Close()", "if err != nil {\n\t\treturn true\n\t}\n\tdefer f.Close()",
			"TestAMissingFileIsNotADeath"},
		{"a node is deleted whatever session owns it", "schema.go",
			"DELETE FROM dlock_node WHERE queue = ? AND seq = ? AND session = ? RETURNING name",
			"DELETE FROM dlock_node WHERE queue = ? AND seq = ? AND ? <> '' RETURNING name",
			"TestConformance/rule07"},
		{"a commit whose outcome is unknown is taken for a failure", "session.go",
			"errors.Is(err, errExpired) || errors.Is(err, errUnknownOutcome)", "errors.Is(err, errExpired)",
			"TestConformance/rule04/a-reply-lost-leaves-nothing-and-takes-no-other-node"},
		{"a release is announced before the removals ahead of it", "look.go",
			"			nodes = append(nodes, driver.Place{Node: released})\n",
			"			nodes = append(nodes, driver.Place{Node: released})\n			s.watches.Gone(queue, released, driver.Released)\n",
			"TestReleasedDoesNotOvertakeTheRemovalOfTheOwnNode"},
		{"a release is remembered by the name of its node", "schema.go",
			"AFTER INSERT ON dlock_node BEGIN\n  UPDATE dlock_store SET changes = changes + 1,\n    released = nullif(released, NEW.queue || '/' || NEW.name);",
			"AFTER INSERT ON dlock_node BEGIN\n  UPDATE dlock_store SET changes = changes + 1;",
			"TestAPutNodeForgetsTheReleaseOfItsName"},
		{"heartbeats wait behind all other transactions", "writers.go", "if u == urgent {", "if false {",
			"TestAHeartbeatGoesAheadOfTransactionsThatWait"},
		{"a call goes on after its session", "driver.go", "	go s.endCalls()\n", "",
			"TestACallEndsWithItsSessionWhileTheDatabaseIsLocked"},
		{"a watch of a queue misses the creates of its own session", "session.go", "		s.watches.Changed(queue)\n", "",
			"TestAQueueWatchSeesACreateOfItsOwnSession"},
	} {
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) {
			b, err := os.ReadFile(m.file)
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(string(b), m.right), "%s has to contain once: %s", m.file, m.right)
			if !*sabotage {
				return
			}
			wrong := strings.Replace(string(b), m.right, m.wrong, 1)
			output, err := testWith(t, m.file, wrong, m.test)
			assert.Error(t, err, "the test did not fail")
			assert.Contains(t, output, "--- FAIL: Test", "the test did not run")
		})
	}
}

// testWith runs a test with another text of a source file.
func testWith(t *testing.T, file, text, test string) (output string, err error) {
	dir := t.TempDir()
	original, err := filepath.Abs(file)
	require.NoError(t, err)
	replaced := filepath.Join(dir, file)
	require.NoError(t, os.WriteFile(replaced, []byte(text), 0o600))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{original: replaced}})
	require.NoError(t, err)
	config := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(config, overlay, 0o600))
	command := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-failfast", "-overlay="+config, "-run=^"+test, ".")
	out, err := command.CombinedOutput()
	t.Logf("%s", out[:min(len(out), 1000)])
	return string(out), err
}
