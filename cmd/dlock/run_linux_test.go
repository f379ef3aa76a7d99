package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/testenv"
)

// treeVariable marks a job's command and all processes that the command starts.
const treeVariable = "DLOCK_TEST_TREE"

// job is a "dlock run" process whose command is a shell script.
type job struct {
	*exec.Cmd
	name   string
	out    *bufio.Reader
	stderr safeBuffer
}

// newJob returns a job that takes the lock "l". The job has no terminal.
func newJob(t *testing.T, dsn, script string, flags ...string) *job {
	name := filepath.Base(t.TempDir()) + "-" + strconv.Itoa(time.Now().Nanosecond())
	args := append([]string{"run", "-driver", "file", "-dsn", dsn}, flags...)
	args = append(args, "l", "--", "env", treeVariable+"="+name, "sh", "-c", script)
	j := &job{Cmd: program(t, args...), name: name}
	j.Stderr = &j.stderr
	j.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	j.Env = append(j.Env, "DLOCK_TEST_JOB="+name)
	t.Cleanup(func() {
		for _, pid := range marked("DLOCK_TEST_JOB=" + name) { // some are left if the test has failed
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if j.Process != nil && j.ProcessState == nil {
			_ = j.Wait()
		}
	})
	return j
}

func startJob(t *testing.T, dsn, script string, flags ...string) *job {
	j := newJob(t, dsn, script, flags...)
	j.start(t)
	return j
}

func (j *job) start(t *testing.T) {
	out, err := j.StdoutPipe()
	require.NoError(t, err)
	j.out = bufio.NewReader(out)
	require.NoError(t, j.Start())
}

func runJob(t *testing.T, dsn, script string, flags ...string) *job {
	j := startJob(t, dsn, script, flags...)
	j.reads(t, "ready")
	return j
}

func (j *job) reads(t *testing.T, want string) {
	t.Helper()
	line, err := j.out.ReadString('\n')
	require.NoError(t, err, "%s", &j.stderr)
	require.Equal(t, want+"\n", line, "%s", &j.stderr)
}

// ends waits for the job, requires its exit status, and returns unread output.
func (j *job) ends(t *testing.T, status int) string {
	t.Helper()
	rest, err := io.ReadAll(j.out)
	require.NoError(t, err)
	_ = j.Wait()
	require.Equal(t, status, j.ProcessState.ExitCode(), "%v %s%s", j.ProcessState, rest, &j.stderr)
	return string(rest)
}

func (j *job) holderProcess(t *testing.T) int {
	for _, pid := range marked("DLOCK_TEST_JOB=" + j.name) {
		if stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat"); err == nil {
			_, after, _ := strings.Cut(string(stat), ") ")
			if parent, _ := strconv.Atoi(strings.Fields(after)[1]); parent == j.Process.Pid {
				return pid
			}
		}
	}
	require.Fail(t, "there is no holder process")
	return 0
}

// tree returns the IDs of the command's living processes.
func (j *job) tree() []int { return marked(treeVariable + "=" + j.name) }

func (j *job) requireNone(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return len(marked("DLOCK_TEST_JOB="+j.name)) == 0 }, waitLimit, 10*time.Millisecond)
}

// marked returns the IDs of all processes with the given environment entry.
func marked(entry string) (pids []int) {
	environments, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environments {
		b, err := os.ReadFile(path)
		if err == nil && bytes.Contains(append([]byte{0}, b...), []byte("\x00"+entry+"\x00")) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
		}
	}
	return pids
}

// startNext starts a job that prints "overlap" if a process of j's command is
// left.
func (j *job) startNext(t *testing.T, dsn string) *job {
	return startJob(t, dsn, `grep -qsz "^`+treeVariable+`=`+j.name+`$" /proc/[0-9]*/environ && echo overlap || echo alone`)
}

// stubborn is a script that ignores SIGTERM, as do the three processes that it
// starts.
const (
	stubbornLoop = `trap "" TERM; echo up >>$DLOCK_TEST_UP; while :; do sleep 1; done`
	stubborn     = `trap "" TERM INT HUP; export DLOCK_TEST_UP=$(mktemp)
		sh -c '` + stubbornLoop + `' &
		setsid sh -c '` + stubbornLoop + `' &
		(setsid sh -c '` + stubbornLoop + `' &)
		until [ "$(wc -l <$DLOCK_TEST_UP)" -eq 3 ]; do sleep 0.01; done; rm $DLOCK_TEST_UP
		echo ready; `
	stubbornForever = stubborn + `while :; do sleep 1; done`
)

func contenderCount(t *testing.T, dsn string) int {
	c, err := dlock.Open("file", dsn)
	require.NoError(t, err)
	defer c.Close()
	queue, err := c.RWMutex("l").Queue(t.Context())
	require.NoError(t, err)
	return len(queue)
}

func requireContenders(t *testing.T, dsn string, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return contenderCount(t, dsn) == n }, waitLimit, 10*time.Millisecond)
}

// longStore returns a store whose sessions outlast a test, so that only
// releases free locks.
func longStore(t *testing.T) (dsn string) { return t.TempDir() + "?session_timeout=10m" }

// newStore returns two names of one store. Removing the second cuts off a
// client.
func newStore(t *testing.T, timeout string) (dsn, removable string) {
	dir := t.TempDir()
	removable = filepath.Join(t.TempDir(), "store")
	require.NoError(t, os.Symlink(dir, removable))
	return dir + "?session_timeout=" + timeout, removable + "?session_timeout=" + timeout
}

func shortStore(t *testing.T) (dsn, removable string) { return newStore(t, "5s") }

func cutOff(t *testing.T, removable string) {
	path, _, _ := strings.Cut(removable, "?")
	require.NoError(t, os.Remove(path))
}

func TestRunPassesOnStreamsStatusAndOpenFiles(t *testing.T) {
	t.Parallel()
	j := newJob(t, longStore(t), `read a; echo "$a"; cat <&3; echo "$DLOCK_LOCK $DLOCK_NODE $DLOCK_TOKEN"; echo oops >&2; ls -l /proc/self/fd; exit 7`)
	third, w, err := os.Pipe()
	require.NoError(t, err)
	_, err = w.WriteString("three\n")
	require.NoError(t, err)
	require.NoError(t, w.Close())
	j.ExtraFiles = []*os.File{third}
	j.Stdin = strings.NewReader("one\n")
	out, err := j.Output()
	require.Error(t, err)
	assert.Equal(t, 7, j.ProcessState.ExitCode())
	assert.Regexp(t, `^one\nthree\nl \S+-W-0*1 1\ntotal`, string(out))
	assert.NotContains(t, string(out), "socket:", "the one between dlock and its holder process")
	assert.Equal(t, "oops\n", j.stderr.String())
}

func TestRunExitStatuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "script")
	require.NoError(t, os.WriteFile(plain, []byte("echo ok; exit $1\n"), 0o600))
	noShebang := filepath.Join(dir, "executable")
	require.NoError(t, os.WriteFile(noShebang, []byte("exit $1\n"), 0o700))
	broken := filepath.Join(dir, "broken")
	require.NoError(t, os.WriteFile(broken, []byte("#!/no/such/interpreter\n"), 0o700))
	store := []string{"-driver", "file", "-dsn", longStore(t)}
	for _, c := range []struct {
		args   []string
		status int
		stderr string
	}{
		{[]string{"l", "--", "true"}, 0, ""},
		{[]string{"l", "true"}, 0, ""},
		{[]string{"l", "--", "sh", "-c", "kill -KILL $$"}, 128 + 9, ""},
		{[]string{"l", "--", noShebang, "9"}, 9, ""},
		{[]string{"l", "--", plain}, 126, "permission denied"},
		{[]string{"l", "--", dir}, 126, "directory"},
		{[]string{"l", "--", broken}, 126, "not run: fork/exec"},
		{[]string{"l", "--", "no-such-command"}, 127, "not run: exec: \"no-such-command\""},
		{[]string{"l", "--", "/no/such/command"}, 127, "not run"},
		{nil, 2, "give the name of a lock"},
		{[]string{"l"}, 2, "give a command"},
		{[]string{"l", "--"}, 2, "give a command"},
		{[]string{"l", "-n", "--", "true"}, 2, "flag -n comes after the name"},
		{[]string{"../l", "--", "true"}, 2, "bad name"},
		{[]string{"-w", "0", "l", "--", "true"}, 2, "must be a positive time"},
		{[]string{"-w", "soon", "l", "--", "true"}, 2, "must be a positive time"},
		{[]string{"-E", "256", "l", "--", "true"}, 2, "-E takes a status from 0 to 255"},
		{[]string{"-max", "1d12h", "l", "--", "true"}, 0, ""},
		{[]string{"-driver", "mem", "l", "--", "true"}, 2, "excludes nobody"},
		{[]string{"-driver", "redis", "l", "--", "true"}, 2, "contrib/cmd/dlock has all"},
	} {
		cmd := program(t, append(append([]string{"run"}, store...), c.args...)...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		_ = cmd.Run()
		assert.Equal(t, c.status, cmd.ProcessState.ExitCode(), "%q: %s", c.args, &stderr)
		assert.Contains(t, stderr.String(), c.stderr, "%q", c.args)
		if c.stderr == "" {
			assert.Empty(t, stderr.String(), "%q", c.args)
		}
	}
}

// Without the right /proc, dlock would kill other processes when it loses the
// lock.
func TestACommandWhoseProcessesCannotBeFoundIsNotRun(t *testing.T) {
	for says, mount := range map[string]string{"another PID namespace": "true", "no such file": "mount -t tmpfs none /proc"} {
		j := newJob(t, longStore(t), "echo wrong")
		j.Args = append([]string{"sh", "-c", mount + ` || exit 99; exec "$0" "$@"`, j.Path}, j.Args[1:]...)
		j.Path = "/bin/sh"
		j.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
		out, err := j.Output()
		if errors.Is(err, syscall.EPERM) || j.ProcessState.ExitCode() == 99 {
			t.Skip("this user may not make namespaces")
		}
		assert.Equal(t, 125, j.ProcessState.ExitCode(), "%v %s", err, &j.stderr)
		assert.Contains(t, j.stderr.String(), says)
		assert.Empty(t, out)
	}
}

// children returns the IDs of a process's children, zombies too.
func children(pid int) (pids []string) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, file := range files {
		b, _ := os.ReadFile(file)
		pids = append(pids, strings.Fields(string(b))...)
	}
	return pids
}

func TestAsProcess1OfAContainer(t *testing.T) {
	t.Parallel()
	if exec.Command("unshare", "-pfmu", "--mount-proc", "true").Run() != nil {
		t.Skip("this user may not make namespaces")
	}
	for name, c := range map[string]struct {
		strike func(t *testing.T, j *job, removable string)
		status int
	}{
		"the pod stops":    {func(t *testing.T, j *job, _ string) { require.NoError(t, j.Process.Signal(syscall.SIGTERM)) }, 3},
		"the lock is lost": {func(t *testing.T, _ *job, removable string) { cutOff(t, removable) }, 123},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, removable := shortStore(t)
			j := newJob(t, removable, stubborn+`trap 'echo "asked $DLOCK_NODE"; exit 3' TERM; while :; do sleep 600 & wait; done`)
			j.Args = append([]string{"sh", "-c", `mount -t proc proc /proc; hostname mailer-7d4b9; exec "$0" "$@"`, j.Path}, j.Args[1:]...)
			j.Path = "/bin/sh"
			j.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWUTS, Unshareflags: syscall.CLONE_NEWNS}
			j.start(t)
			j.reads(t, "ready")
			next := j.startNext(t, dsn)
			requireContenders(t, dsn, 2)

			stray := exec.Command("nsenter", "-t", strconv.Itoa(j.Process.Pid), "-p", "sh", "-c", "cat <&3 &") // kubectl exec may leave such a process
			r, w, err := os.Pipe()
			require.NoError(t, err)
			stray.ExtraFiles = []*os.File{r}
			require.NoError(t, stray.Run())
			require.NoError(t, r.Close())
			adopted := func(n int) func() bool { return func() bool { return len(children(j.Process.Pid)) == n } }
			require.Eventually(t, adopted(2), waitLimit, 10*time.Millisecond, "the holder process and cat")
			require.NoError(t, w.Close())
			require.Eventually(t, adopted(1), waitLimit, 10*time.Millisecond, "cat has ended, and is not reaped")

			c.strike(t, j, removable)
			assert.Regexp(t, `^asked mailer-7d4b9-W-\d+\n$`, j.ends(t, c.status))
			assert.Equal(t, "alone\n", next.ends(t, 0))
			j.requireNone(t)
		})
	}
}

func TestRunHasStatusesForALockThatIsNotFreeAndAStoreThatFails(t *testing.T) {
	t.Parallel()
	dsn := longStore(t)
	runJob(t, dsn, "echo ready; exec sleep 600")
	for _, flags := range [][]string{{"-n"}, {"-n", "-shared"}, {"-w", "2.5"}, {"-w", "2500ms", "-shared"}, {"-w", "2500ms", "-once-per", "1h"}} {
		j := startJob(t, dsn, "echo wrong", flags...)
		assert.Empty(t, j.ends(t, 121))
		assert.Contains(t, j.stderr.String(), "dlock run: not run: l: ")
		assert.Contains(t, j.stderr.String(), "-W-0000000001", "it names the holder")
	}
	for _, flags := range [][]string{{"-q", "-E", "7", "-n"}, {"-q", "-E", "7", "-w", "1500ms", "-shared"}} {
		j := startJob(t, dsn, "echo wrong", flags...)
		assert.Empty(t, j.ends(t, 7))
		assert.Empty(t, j.stderr.String())
	}
	for _, flags := range [][]string{{"-n"}, {"-w", "1500ms"}, {"-n", "-q"}} {
		j := startJob(t, filepath.Join(t.TempDir(), "missing"), "echo wrong", flags...)
		assert.Empty(t, j.ends(t, 122))
		assert.Equal(t, flags[0] == "-w", strings.Contains(j.stderr.String(), "still connecting to the store file"), "%s", &j.stderr)
		assert.Contains(t, j.stderr.String(), "no such file or directory")
		assert.Contains(t, j.stderr.String(), "dlock run: not run: ")
	}
}

func TestRunNamesAnUnreachableServerWithoutItsPassword(t *testing.T) {
	t.Parallel()
	cmd := program(t, "run", "-w", "1500ms", "l", "--", "true")
	cmd.Env = append(cmd.Env, "DLOCK_DRIVER=zk", "DLOCK_DSN=zk://alice:geheim@127.0.0.1:1/locks")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	assert.Equal(t, 122, cmd.ProcessState.ExitCode())
	assert.Contains(t, string(out), "still connecting to the store zk zk://alice:...@127.0.0.1:1")
	assert.Contains(t, string(out), "connection refused")
	assert.NotContains(t, string(out), "geheim")
}

func TestASignalEndsTheWaitAndLeavesNothingInTheQueue(t *testing.T) {
	t.Parallel()
	dsn := longStore(t)
	runJob(t, dsn, "echo ready; exec sleep 600")
	for _, sent := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1} {
		waiter := startJob(t, dsn, "echo wrong", "-v")
		requireContenders(t, dsn, 2)
		require.NoError(t, waiter.Process.Signal(sent))
		if sent == syscall.SIGTERM {
			_ = waiter.Process.Signal(sent) // the timeout command sends the signal twice
		}
		assert.Empty(t, waiter.ends(t, 128+int(sent)))
		assert.Equal(t, 1, contenderCount(t, dsn))
	}
}

func TestAWaiterThatIsKilledLeavesNothingInTheQueue(t *testing.T) {
	t.Parallel()
	dsn := longStore(t)
	holder := runJob(t, dsn, "echo ready; exec sleep 600")
	waiter := startJob(t, dsn, "echo wrong")
	requireContenders(t, dsn, 2)
	require.NoError(t, waiter.Process.Kill())
	requireContenders(t, dsn, 1)
	waiter.requireNone(t)
	rest, err := io.ReadAll(waiter.out)
	require.NoError(t, err)
	assert.Empty(t, rest)
	require.NoError(t, holder.Process.Signal(syscall.SIGTERM))
	holder.ends(t, 128+int(syscall.SIGTERM))
}

func TestEachSignalReachesTheCommandOnce(t *testing.T) {
	t.Parallel()
	j := runJob(t, longStore(t), `for s in HUP INT QUIT USR1 USR2; do trap "echo $s" $s; done; trap "echo TERM; exit 3" TERM; echo ready; while :; do sleep 600 & wait; done`)
	for name, sent := range map[string]syscall.Signal{"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2} {
		require.NoError(t, j.Process.Signal(sent))
		j.reads(t, name)
	}
	require.NoError(t, j.Process.Signal(syscall.SIGTERM))
	assert.Equal(t, "TERM\n", j.ends(t, 3))
}

func TestACommandReadsTheTerminalAndGetsItsInterruptOnce(t *testing.T) {
	t.Parallel()
	dsn := longStore(t)
	keyboard, terminal := testenv.OpenTerminal(t)
	j := newJob(t, dsn, `trap 'trap "echo again" INT; echo INT; read line </dev/tty; echo "read $line"; exit 8' INT; echo ready; while :; do sleep 600 & wait; done`)
	j.Stdin = terminal
	j.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	j.start(t)
	j.reads(t, "ready")
	_, err := keyboard.WriteString("\x03")
	require.NoError(t, err)
	j.reads(t, "INT")
	_, err = keyboard.WriteString("x\n")
	require.NoError(t, err)
	assert.Equal(t, "read x\n", j.ends(t, 8))

	runJob(t, dsn, "echo ready; exec sleep 600")
	waiter := newJob(t, dsn, "echo wrong")
	keyboard, waiter.Stdin = testenv.OpenTerminal(t)
	waiter.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, waiter.Start())
	requireContenders(t, dsn, 2)
	_, err = keyboard.WriteString("\x03")
	require.NoError(t, err)
	require.Error(t, waiter.Wait())
	assert.Equal(t, 128+int(syscall.SIGINT), waiter.ProcessState.ExitCode(), "%s", &waiter.stderr)
	requireContenders(t, dsn, 1)
}

func TestIfATerminalIsThereAKilledDlockStillTakesAllWithIt(t *testing.T) {
	t.Parallel()
	dsn := longStore(t)
	j := newJob(t, dsn, stubbornForever)
	_, j.Stdin = testenv.OpenTerminal(t)
	j.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	j.start(t)
	j.reads(t, "ready")
	next := j.startNext(t, dsn)
	requireContenders(t, dsn, 2)
	require.NoError(t, syscall.Kill(-j.Process.Pid, syscall.SIGKILL)) // the group, as the timeout command does
	assert.Equal(t, "alone\n", next.ends(t, 0))
	j.requireNone(t)
}

func TestACommandKeepsIgnoringWhatDlockWasToldToIgnore(t *testing.T) {
	t.Parallel()
	j := newJob(t, longStore(t), `grep SigIgn /proc/$$/status`)
	j.Args = append([]string{"sh", "-c", `trap "" HUP; exec "$@"`, "sh"}, j.Args...)
	j.Path = "/bin/sh"
	out, err := j.Output()
	require.NoError(t, err)
	var ignored uint64 // includes the signals that the test ignores
	_, err = fmt.Sscanf(string(out), "SigIgn:\t%x\n", &ignored)
	require.NoError(t, err, "%q", out)
	assert.NotZero(t, ignored&(1<<(syscall.SIGHUP-1)))
	assert.Zero(t, ignored&(1<<(syscall.SIGPIPE-1)))
}

func TestNothingOfACommandOutlivesALockThatIsLost(t *testing.T) {
	t.Parallel()
	signalHolder := func(sent syscall.Signal) func(*testing.T, *job, string) {
		return func(t *testing.T, j *job, _ string) { require.NoError(t, syscall.Kill(j.holderProcess(t), sent)) }
	}
	for name, c := range map[string]struct {
		timeout string // session timeout
		strike  func(t *testing.T, j *job, removable string)
		says    string
	}{
		"dlock is killed":       {"10m", func(t *testing.T, j *job, _ string) { require.NoError(t, j.Process.Kill()) }, ""},
		"its holder is killed":  {"5s", signalHolder(syscall.SIGKILL), "lost the lock: the process that holds it has ended: signal: killed"},
		"its holder is stopped": {"5s", signalHolder(syscall.SIGSTOP), "lost the lock: the process that holds it did not answer"},
		"the store is cut off":  {"5s", func(t *testing.T, _ *job, removable string) { cutOff(t, removable) }, ": ending the command"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, removable := newStore(t, c.timeout)
			j := runJob(t, removable, stubbornForever)
			require.GreaterOrEqual(t, len(j.tree()), 4)
			next := j.startNext(t, dsn)
			requireContenders(t, dsn, 2)
			c.strike(t, j, removable)
			if c.says != "" {
				j.ends(t, 123)
				assert.Contains(t, j.stderr.String(), c.says)
				assert.Empty(t, j.tree())
			}
			assert.Equal(t, "alone\n", next.ends(t, 0))
			j.requireNone(t)
		})
	}
}

func TestIfTheHolderProcessIsKilledWhileItWaitsNothingRuns(t *testing.T) {
	t.Parallel()
	dsn := longStore(t)
	runJob(t, dsn, "echo ready; exec sleep 600")
	waiter := startJob(t, dsn, "echo wrong")
	requireContenders(t, dsn, 2)
	require.NoError(t, syscall.Kill(waiter.holderProcess(t), syscall.SIGKILL))
	assert.Empty(t, waiter.ends(t, 122))
	assert.Contains(t, waiter.stderr.String(), "not run: the process that takes the lock has ended")
}

func TestAStoppedDlockKeepsItsLock(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for a session to time out")
	}
	dsn, _ := shortStore(t)
	stdin, w, err := os.Pipe()
	require.NoError(t, err)
	j := newJob(t, dsn, "echo ready; read line; exit 7")
	j.Stdin = stdin
	j.start(t)
	j.reads(t, "ready")
	require.NoError(t, j.Process.Signal(syscall.SIGSTOP))
	waiter := startJob(t, dsn, "echo wrong", "-w", "8s") // longer than the session timeout of 5 s
	assert.Empty(t, waiter.ends(t, 121))
	require.NoError(t, j.Process.Signal(syscall.SIGCONT))
	_, err = w.WriteString("go on\n")
	require.NoError(t, err)
	j.ends(t, 7)
}

func TestALostLockEndsTheCommandBySIGTERM(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for a session to time out")
	}
	dsn, removable := shortStore(t)
	j := runJob(t, removable, `trap "echo asked; exit 5" TERM; echo ready; while :; do sleep 600 & wait; done`)
	next := j.startNext(t, dsn)
	requireContenders(t, dsn, 2)
	cutOff(t, removable)
	assert.Equal(t, "asked\n", j.ends(t, 123))
	assert.Contains(t, j.stderr.String(), "the lease ran out")
	assert.Contains(t, j.stderr.String(), ": ending the command")
	assert.Equal(t, "alone\n", next.ends(t, 0))
}

func TestADlockThatIsKilledInTheGraceLeavesNothing(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for a session to time out")
	}
	dsn, removable := shortStore(t)
	j := runJob(t, removable, stubborn+`trap "echo asked" TERM; while :; do sleep 1; done`)
	next := j.startNext(t, dsn)
	requireContenders(t, dsn, 2)
	cutOff(t, removable)
	j.reads(t, "asked")
	_ = j.Process.Kill()
	assert.Equal(t, "alone\n", next.ends(t, 0))
	j.requireNone(t)
}

func TestALockThatTheStoreHasGivenAwayKillsTheCommandAtOnce(t *testing.T) {
	t.Parallel()
	dsn := longStore(t)
	j := runJob(t, dsn, `trap "echo asked" TERM; echo ready; while :; do sleep 1; done`)
	dir, _, _ := strings.Cut(dsn, "?")
	sessions, err := filepath.Glob(filepath.Join(dir, "session-*"))
	require.NoError(t, err)
	require.Len(t, sessions, 1)
	require.NoError(t, os.Remove(sessions[0]))
	requireContenders(t, dsn, 0) // this request makes the store drop the session
	if rest := j.ends(t, 123); rest != "" {
		assert.Fail(t, "there was a grace", rest)
	}
	assert.Contains(t, j.stderr.String(), ": killing the command")
}

func TestNothingOfACommandThatHasEndedOutlivesTheLock(t *testing.T) {
	t.Parallel()
	dsn := t.TempDir() + "?session_timeout=16s" // the kill delay is an eighth, 2 s
	asked := filepath.Join(t.TempDir(), "asked")
	j := newJob(t, dsn, stubborn+`(trap "touch `+asked+`; exit" TERM; echo up; while :; do sleep 600 & wait; done) & exit 4`)
	r, w, err := os.Pipe() // open until every process has ended
	require.NoError(t, err)
	j.Stdout, j.out = w, bufio.NewReader(r)
	require.NoError(t, j.Start())
	require.NoError(t, w.Close())
	j.reads(t, "ready")
	next := j.startNext(t, dsn)
	j.ends(t, 4)
	assert.Equal(t, "alone\n", next.ends(t, 0))
	assert.Empty(t, j.stderr.String())
}

func TestHoldKeepsTheLockAfterTheCommand(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(j *job) error{
		"until a signal":     func(j *job) error { return j.Process.Signal(syscall.SIGTERM) },
		"until dlock killed": func(j *job) error { return j.Process.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn := longStore(t)
			j := startJob(t, dsn, "echo ready", "-hold", "1h")
			j.reads(t, "ready")
			require.Eventually(t, func() bool { return len(j.tree()) == 0 }, waitLimit, 10*time.Millisecond)
			startJob(t, dsn, "echo wrong", "-n").ends(t, 121)
			require.NoError(t, end(j))
			requireContenders(t, dsn, 0)
			j.requireNone(t)
		})
	}
	j := startJob(t, longStore(t), "exit 6", "-hold", "10ms")
	j.ends(t, 6)
}

func TestACommandThatHangsIsEnded(t *testing.T) {
	t.Parallel()
	dsn := longStore(t)
	for script, says := range map[string]string{`trap "echo ended; exit" TERM; sleep 600 & kill -STOP $$; wait`: "ended\n", stubborn + "while :; do sleep 600; done": ""} {
		j := startJob(t, dsn, script, "-max", "3s")
		assert.Contains(t, j.ends(t, 124), says)
		assert.Contains(t, j.stderr.String(), "dlock run: the command has run for 3s: ending it")
		j.requireNone(t)
		requireContenders(t, dsn, 0)
	}
}

func TestSharedLocksRunTogether(t *testing.T) {
	t.Parallel()
	dsn := longStore(t)
	for range 2 {
		runJob(t, dsn, "echo ready; exec sleep 600", "-shared")
	}
	assert.Equal(t, 2, contenderCount(t, dsn))
}

func TestAWaiterSaysWhoHoldsTheLock(t *testing.T) {
	t.Parallel()
	dsn := longStore(t)
	runJob(t, dsn, "echo ready; exec sleep 600")
	waiter := startJob(t, dsn, "echo wrong", "-w", "2s", "-v")
	waiter.ends(t, 121)
	assert.Regexp(t, `dlock run: waiting for l with 1 ahead, the first of them \S+-W-0*1 `, waiter.stderr.String())
}

func TestAnUnconfirmedUnlockIsAWarning(t *testing.T) {
	t.Parallel()
	dsn := longStore(t)
	dir, _, _ := strings.Cut(dsn, "?")
	path := filepath.Join(t.TempDir(), "store")
	require.NoError(t, os.Symlink(dir, path))
	j := startJob(t, path+"?session_timeout=10m", "rm "+path+"; exit 5")
	j.ends(t, 5)
	assert.Contains(t, j.stderr.String(), "unlocked, but the store has not confirmed it")
}
