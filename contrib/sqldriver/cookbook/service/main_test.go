//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/leakcheck"
)

func TestMain(m *testing.M) {
	if os.Getenv("DLOCK_COOKBOOK_SERVICE") != "" {
		main()
		return
	}
	os.Exit(leakcheck.After(m.Run()))
}

type service struct {
	*exec.Cmd
	log *bufio.Scanner
}

func start(t *testing.T, dsn, dir string) *service {
	s := &service{Cmd: exec.Command(os.Args[0], dsn, dir)}
	s.Env = append(os.Environ(), "DLOCK_COOKBOOK_SERVICE=1")
	out, err := s.StderrPipe()
	require.NoError(t, err)
	s.log = bufio.NewScanner(out)
	require.NoError(t, s.Start())
	t.Cleanup(func() {
		_ = s.Process.Kill()
		_ = s.Wait()
	})
	return s
}

func (s *service) await(t *testing.T, text string) {
	t.Helper()
	for s.log.Scan() {
		if strings.HasSuffix(s.log.Text(), text) {
			return
		}
	}
	t.Fatalf("the process has ended without logging %q", text)
}

// The job is a named pipe, so that the test decides when the job ends.
func TestAJobThatHasBegunIsFinished(t *testing.T) {
	dir := t.TempDir()
	dsn := filepath.Join(dir, "locks.db") + "?session_timeout=24h"
	job := filepath.Join(dir, "1.job")
	require.NoError(t, syscall.Mkfifo(job, 0o600))

	first := start(t, dsn, dir)
	input, err := os.OpenFile(job, os.O_WRONLY, 0) // blocks until the job reads the pipe
	require.NoError(t, err)
	client, err := dlock.Open("sqlite", dsn)
	require.NoError(t, err)
	defer client.Close()
	_, err = client.RWMutex("job/1.job").TryLock(t.Context())
	require.ErrorIs(t, err, dlock.ErrLocked)
	granted := make(chan error, 1)
	go func() {
		lock, err := client.RWMutex("job/1.job").Lock(t.Context())
		_ = lock.Unlock()
		granted <- err
	}()

	require.NoError(t, first.Process.Signal(syscall.SIGTERM))
	first.await(t, "stopping")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "2.job"), []byte("late"), 0o600))
	_, err = io.WriteString(input, "paid")
	require.NoError(t, err)
	require.NoError(t, input.Close())
	first.await(t, "1.job: paid")
	assert.NoError(t, first.Wait(), "exit status 0")
	assert.FileExists(t, job+".done")
	assert.FileExists(t, filepath.Join(dir, "2.job"), "no job begins after SIGTERM")
	require.NoError(t, <-granted, "a waiter in another process gets the lock")

	second := start(t, dsn, dir)
	second.await(t, "2.job: late")
	require.NoError(t, second.Process.Signal(syscall.SIGTERM))
	assert.NoError(t, second.Wait())
}
