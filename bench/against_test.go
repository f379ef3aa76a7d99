package main

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

const olderProgram = `package main

import "os"

func main() {
	os.Stdin.Read(make([]byte, 100))
	os.Stdout.WriteString("error older " + os.Args[1] + " " + os.Args[2] + "\n")
}
`

func git(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command("git", append([]string{"-c", "user.name=test", "-c", "user.email=test@localhost"}, args...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestOlderRevisionRunsItsOwnProgram(t *testing.T) {
	t.Setenv("GIT_CONFIG_GLOBAL", os.DevNull)
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	t.Chdir(t.TempDir())
	git(t, "init", "--quiet")
	require.NoError(t, os.Mkdir("bench", 0o755))
	require.NoError(t, os.WriteFile("bench/go.mod", []byte("module bench\n\ngo 1.25\n"), 0o600))
	for _, revision := range [][2]string{{"older", olderProgram}, {"broken", "not even Go"}} {
		require.NoError(t, os.WriteFile("bench/main.go", []byte(revision[1]), 0o600))
		git(t, "add", ".")
		git(t, "commit", "--quiet", "-m", revision[0])
		git(t, "tag", revision[0])
	}
	r, err := build(t.Context(), "older", t.TempDir())
	require.NoError(t, err)
	require.Regexp(t, `^[0-9a-f]{10}$`, r.label)
	pair := withOlder(competitors()[:1], r)
	cmd, err := pair[1].command()
	require.NoError(t, err)
	c, err := startChild(cmd)
	require.NoError(t, err)
	t.Cleanup(c.stop)
	_, err = c.ask("go", "report", answerWithin)
	require.EqualError(t, err, "older -child dlock")
	_, err = build(t.Context(), "broken", t.TempDir())
	require.ErrorContains(t, err, "expected 'package'")
}

func TestOnlyThisLibraryGetsAnOlderCounterpart(t *testing.T) {
	require.Equal(t,
		[]string{"dlock", "dlock@older", "dlock-list", "dlock-list@older", "zk.Lock"},
		mapped(withOlder(competitors()[:3], revision{}), competitor.id))
}

func against(current, older []sample) (row string, err error) {
	r := runOf("contend-8", map[string][]sample{"dlock": current, "dlock@older": older})
	r.older = "v1"
	text, err := r.against()
	return lines(text)[4], err
}

func TestWorkloadIsSlowerIfTheWholeIntervalIsBelow95Percent(t *testing.T) {
	older := rounds("rate", 100, 200, 100, 100, 100, 100)
	row, err := against(rounds("rate", 90, 180, 94, 94, 94, 94), older)
	require.Equal(t, "| contend-8 | dlock | 94.0/s | 100/s | 0.940 | 0.900 to 0.940 | 6 |", row)
	require.EqualError(t, err, "bench: on one server slower than v1, with the whole 95% interval below 0.95: contend-8, dlock: 0.940 (0.900 to 0.940)")

	row, err = against(rounds("rate", 90, 180, 90, 90, 90, 95), older)
	require.Equal(t, "| contend-8 | dlock | 90.0/s | 100/s | 0.900 | 0.900 to 0.950 | 6 |", row)
	require.NoError(t, err, "one round leaves it open")
}

func TestTooFewRoundsAreAnError(t *testing.T) {
	older := rounds("rate", 100, 100, 100, 100, 100, 100)
	older[3] = nil
	row, err := against(rounds("rate", 50, 50, 50, 50, 50, 50), older)
	require.Equal(t, "| contend-8 | dlock | 50.0/s | 100/s | 0.500 | - | 5 |", row)
	require.EqualError(t, err, "bench: on one server not compared with v1, because a 95% interval takes 6 rounds: contend-8, dlock: 5")
}

func TestTheIntervalOfAMedianIsThatOfTheSignTest(t *testing.T) {
	values := func(n int) (list []float64) {
		for i := range n {
			list = append(list, float64(n-i))
		}
		return list
	}
	for n, low := range map[int]float64{6: 1, 8: 1, 9: 2, 20: 6, 30: 10, 100: 40} { // from a table of the sign test
		require.Equal(t, []float64{low, float64(n+1) - low}, medianInterval(values(n)), "of %d", n)
	}
	for n := range minForInterval {
		require.Nil(t, medianInterval(values(n)), "of %d", n)
	}
}
