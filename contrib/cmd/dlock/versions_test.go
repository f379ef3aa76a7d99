//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// buildEarlier builds dlock from the latest release or, without releases, from
// a fixed commit.
const buildEarlier = `
	commit=$(git describe --tags --match 'v[0-9]*' --abbrev=0 HEAD^ 2>/dev/null || echo 33efffba)
	git -C "$(git rev-parse --show-toplevel)" archive -o "$0/tar" "$commit" && tar -x -C "$0" -f "$0/tar"
	cd "$0/contrib/cmd" && go build -o "$0/earlier" ./dlock`

// refused matches the subtests in which a version rejects the other version's
// layout.
var refused = regexp.MustCompile(`^(mysql|postgres|sqlite)/|^redis/earlier holds$`)

func TestAnEarlierVersionBesideThisOne(t *testing.T) {
	if testing.Short() {
		t.Skip("builds an earlier version, and waits for session timeouts")
	}
	shallow, err := exec.Command("git", "rev-parse", "--is-shallow-repository").Output()
	require.NoError(t, err)
	if string(shallow) == "true\n" {
		t.Skip("needs a clone with its whole history: git fetch --unshallow --tags")
	}
	dir := t.TempDir()
	out, err := exec.Command("sh", "-euc", buildEarlier, dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	earlier, now := filepath.Join(dir, "earlier"), os.Args[0]
	for name, open := range stores {
		for title, c := range map[string][2]string{name + "/earlier holds": {earlier, now}, name + "/now holds": {now, earlier}} {
			t.Run(title, func(t *testing.T) {
				t.Parallel()
				if out, _ := exec.Command(earlier, "version").Output(); name == "nats" && !strings.Contains(string(out), name) {
					t.Skip("there was no such driver")
				}
				beside(t, c[0], c[1], refused.MatchString(title), "-driver", name, "-dsn", open(t))
			})
		}
	}
}

// beside checks that other waits, or fails if refused, while holder keeps its
// lock.
func beside(t *testing.T, holder, other string, refused bool, store ...string) {
	run := func(program, command string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), program, slices.Concat([]string{command}, store, args)...)
		cmd.WaitDelay = time.Minute
		out, _ := cmd.CombinedOutput()
		t.Logf("%s %s %v: %s", filepath.Base(program), command, args, out)
		return string(out)
	}
	file, next := filepath.Join(t.TempDir(), "ready"), other
	take := func(program, script string) <-chan string {
		out, ended := make(chan string, 1), make(chan struct{})
		t.Cleanup(func() { <-ended })
		go func() {
			defer close(ended)
			out <- run(program, "run", "l", "--", "sh", "-c", script, file)
		}()
		return out
	}
	held := take(holder, `echo "$DLOCK_TOKEN" >"$0"; until [ -e "$0.end" ]; do sleep 0.1; done; echo kept`)
	require.Eventually(t, func() bool { return exists(file) }, time.Minute, 10*time.Millisecond)
	if out := run(other, "run", "-w", "8s", "l", "--", "true"); refused {
		require.Regexp(t, `have (layout|version) \w+, and this .* needs (layout|version) \w+|have the version \w+, and this program knows the version`, out)
		next = holder
	} else {
		require.Contains(t, out, ": held by ")
	}
	then := take(next, `[ "$DLOCK_TOKEN" -gt "$(cat "$0")" ] && echo rises`)
	require.Eventually(t, func() bool { return strings.Contains(run(holder, "queue", "l"), "\nwaits ") }, time.Minute, 50*time.Millisecond)
	require.NoError(t, os.WriteFile(file+".end", nil, 0o600))
	assert.Contains(t, <-held, "kept\n")
	assert.Contains(t, <-then, "rises\n")
}
