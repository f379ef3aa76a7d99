package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/bench/internal/work"
)

// repository changes the working directory to a new, empty git repository.
func repository(t *testing.T) {
	t.Helper()
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	t.Chdir(t.TempDir())
	git(t, "init", "--quiet")
}

func git(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command("git", append([]string{"-c", "user.name=test", "-c", "user.email=test@localhost"}, args...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// revisionWith commits a bench module with the given main.go, and tags the
// commit.
func revisionWith(t *testing.T, tag, source string) {
	t.Helper()
	require.NoError(t, os.MkdirAll("bench", 0o755))
	require.NoError(t, os.WriteFile("bench/go.mod", []byte("module bench\n\ngo 1.25\n"), 0o600))
	require.NoError(t, os.WriteFile("bench/main.go", []byte(source), 0o600))
	git(t, "add", ".")
	git(t, "commit", "--quiet", "-m", tag)
	git(t, "tag", tag)
}

// answering returns the source of a program that answers any command with the
// given error.
func answering(text string) string {
	return `package main

import "os"

func main() {
	os.Stdin.Read(make([]byte, 100))
	println("arguments:", os.Args[1], os.Args[2])
	os.Stdout.WriteString("error ` + text + `\n")
}
`
}

func TestOlderRevisionRunsItsOwnProgram(t *testing.T) {
	repository(t)
	revisionWith(t, "v1", answering("of v1"))
	revisionWith(t, "v2", answering("of v2"))
	for _, tag := range []string{"v1", "v2"} {
		r, err := build(t.Context(), tag, t.TempDir())
		require.NoError(t, err)
		require.Regexp(t, tag+` \([0-9a-f]{10}\)`, r.label)
		pair := withOlder([]competitor{{name: "dlock", label: "dlock", kind: ours}}, r)
		require.Len(t, pair, 2)
		cmd, err := pair[1].command("")
		require.NoError(t, err)
		c, err := startChild(cmd)
		require.NoError(t, err)
		_, err = c.ask("go", "report", answerWithin)
		require.EqualError(t, err, "of "+tag)
		c.stop()
		require.Equal(t, "arguments: -child dlock", c.stderr.String())
	}
}

func TestLabelContainsTheCommitOnce(t *testing.T) {
	commit := "82a8824b1c" + strings.Repeat("0", 30)
	require.Equal(t, "82a8824b1c", label("82a8824", commit))
	require.Equal(t, "82a8824b1c", label(commit, commit))
	require.Equal(t, "v1.2.3 (82a8824b1c)", label("v1.2.3", commit))
}

func TestErrorOfARevisionThatDoesNotBuildNamesTheRemedy(t *testing.T) {
	t.Setenv("GIT_CEILING_DIRECTORIES", os.TempDir())
	t.Chdir(t.TempDir())
	_, err := build(t.Context(), "v1", t.TempDir())
	require.ErrorContains(t, err, "bench: -against v1: this takes git and a clone of the repository")

	repository(t)
	require.NoError(t, os.WriteFile("README", nil, 0o600))
	git(t, "add", ".")
	git(t, "commit", "--quiet", "-m", "no bench")
	git(t, "tag", "v0")
	revisionWith(t, "v1", "package main\n\nfunc main() { dlock() }\n")
	for name, what := range map[string]string{
		"v9":  "bench: -against v9: git does not have this revision: fetch it, or name another one",
		"-v9": "bench: -against -v9: git does not have this revision: fetch it, or name another one",
		"v0":  "bench: -against v0: this revision has no bench module: name a later one",
		"v1":  "bench: -against v1: its bench does not build: mend what go reports, or name another revision",
	} {
		_, err := build(t.Context(), name, t.TempDir())
		require.ErrorContains(t, err, what)
	}
	_, err = build(t.Context(), "v1", t.TempDir())
	require.ErrorContains(t, err, "undefined: dlock")
}

func TestFilesOfAnOlderRevisionAreRemoved(t *testing.T) {
	repository(t)
	revisionWith(t, "v1", "package main\n\nfunc main() { dlock() }\n")
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	left := func() []os.DirEntry {
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		return entries
	}
	o := options{against: "v1", rounds: 6}
	require.ErrorContains(t, o.measure(t.Context()), "does not build")
	require.Empty(t, left())

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, o.measure(ctx), context.Canceled)
	require.Empty(t, left())
	out, err := exec.Command("git", "worktree", "list").Output()
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(out), "\n"), "%s", out)
}

// A plan without sessions needs no server.
func TestTheLastCommitOfThisRepositoryUnderstandsTheProtocol(t *testing.T) {
	if testing.Short() {
		t.Skip("builds every package again; TestPlansAndReportsKeepTheirNames is a fast check")
	}
	r, err := build(t.Context(), "HEAD", t.TempDir())
	require.NoError(t, err)
	for _, o := range withOlder(competitors(), r) {
		if o.kind != variant || !strings.HasSuffix(o.name, olderName("")) {
			continue
		}
		cmd, err := o.command("")
		require.NoError(t, err)
		c, err := startChild(cmd)
		require.NoError(t, err)
		t.Cleanup(c.stop)
		for _, kind := range []string{work.Loop, work.Try} {
			require.NoError(t, c.prepare(work.Plan{Kind: kind, Millis: 1}))
			report, err := c.measure(work.Plan{Kind: kind, Millis: 1})
			require.NoError(t, err)
			require.Positive(t, report.Seconds)
			require.NoError(t, c.end())
		}
	}
}

func TestOnlyThisLibraryGetsAnOlderCounterpart(t *testing.T) {
	require.Equal(t,
		[]string{"dlock", "dlock@older", "dlock-list", "dlock-list@older", "zk.Lock"},
		mapped(withOlder([]competitor{
			{name: "dlock", kind: ours}, {name: "dlock-list", kind: variant}, {name: "zk.Lock", kind: peer},
		}, revision{}), competitor.id))
}

func TestFlagsThatDoNotGoWithAnOlderRevision(t *testing.T) {
	require.EqualError(t, command([]string{"-against", "v1"}),
		"bench: -against takes at least 6 rounds for a 95% interval: add -rounds 30")
	require.EqualError(t, command([]string{"-against", "v1", "-rounds", "6", "-competitors", "zk.Lock"}),
		"bench: -against has nothing to compare: add dlock to -competitors")
}

func olderReport(workload string, current, older []sample) *report {
	r := newResults("one", 6)
	r.Against = "v1"
	r.Samples = map[string]map[string][]sample{workload: {"dlock": current, "dlock@older": older}}
	return newReport(r)
}

func TestSlowerWorkloadIsAnError(t *testing.T) {
	r := olderReport("contend-8",
		rounds("rate", 90, 180, 94, 94, 94, 94), rounds("rate", 100, 200, 100, 100, 100, 100))
	require.Contains(t, r.against(), "| contend-8 | dlock | 94.0/s | 100/s | 0.940 | 0.900 to 0.940 | 6 |")
	require.EqualError(t, r.slowerThanOlder(),
		"bench: on one server slower than v1, with the whole 95% interval below 0.95: contend-8, dlock: 0.940 (0.900 to 0.940)")
}

func TestOneRoundThatIsNotSlowerLeavesAWorkloadOpen(t *testing.T) {
	r := olderReport("contend-8",
		rounds("rate", 90, 90, 90, 90, 90, 95), rounds("rate", 100, 100, 100, 100, 100, 100))
	require.Contains(t, r.against(), "| 0.900 | 0.900 to 0.950 | 6 |")
	require.NoError(t, r.slowerThanOlder())
}

func TestWorkloadIsAsFastIfTheWholeIntervalIs(t *testing.T) {
	r := olderReport("contend-8",
		rounds("rate", 95, 110, 110, 110, 110, 110), rounds("rate", 100, 100, 100, 100, 100, 100))
	require.Contains(t, r.against(), "| 1.100 | 0.950 to 1.100 | 6 |")
	require.NoError(t, r.slowerThanOlder())
}

func TestMoreTimeThanBeforeIsAnError(t *testing.T) {
	r := olderReport("free",
		rounds("p50", 200, 200, 200, 200, 200, 200), rounds("p50", 100, 100, 100, 100, 100, 100))
	require.Contains(t, r.against(), "| free | dlock | 200 us | 100 us | 0.500 | 0.500 to 0.500 | 6 |")
	require.ErrorContains(t, r.slowerThanOlder(), "free, dlock: 0.500")
}

func TestTooFewRoundsAreAnError(t *testing.T) {
	older := rounds("rate", 100, 100, 100, 100, 100, 100)
	older[3] = nil
	r := olderReport("contend-8", rounds("rate", 50, 50, 50, 50, 50, 50), older)
	require.Contains(t, r.against(), "| 0.500 | - | 5 |")
	require.EqualError(t, r.slowerThanOlder(),
		"bench: on one server not compared with v1, because a 95% interval takes 6 rounds: contend-8, dlock: 5")
}

func TestOlderRevisionIsSavedAndLoaded(t *testing.T) {
	r := olderReport("contend-8",
		rounds("rate", 1, 1, 1, 1, 1, 1), rounds("rate", 1, 1, 1, 1, 1, 1))
	path := filepath.Join(t.TempDir(), "results.json")
	require.NoError(t, r.save(path))
	loaded, err := load(path)
	require.NoError(t, err)
	require.Equal(t, r.against(), newReport(loaded).against())
}
