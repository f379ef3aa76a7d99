//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package main

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/leakcheck"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.After(m.Run())) }

func has(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, want, string(got))
}

func TestTheProgram(t *testing.T) {
	t.Chdir(t.TempDir())
	main()
	has(t, "prices.json", "{}\n")
	has(t, "prices.json.token", "1\n")
}

func TestALateWriteIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "prices")
	require.NoError(t, write(path, 33, []byte("old")))
	require.NoError(t, write(path, 34, []byte("new")))
	require.ErrorIs(t, write(path, 33, []byte("late")), errStale)
	has(t, path, "new")
	require.NoError(t, write(path, 34, []byte("again")), "a holder may write twice")
	has(t, path, "again")

	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, left, 3, "no temporary file is left")
}

func TestADamagedTokenRefusesEveryWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "prices")
	require.NoError(t, os.WriteFile(path+".token", []byte("x"), 0o600))
	assert.ErrorContains(t, write(path, 1, nil), "token of "+path)
	assert.NoFileExists(t, path)
}

func TestAFailedWriteLeavesNoTemporaryFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "prices")
	require.NoError(t, os.Mkdir(path, 0o700))
	require.Error(t, write(path, 1, nil))
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	assert.Len(t, left, 3, "the directory, the token and the kernel's lock")
}

func TestOfConcurrentWritesTheGreatestTokenStays(t *testing.T) {
	dir := t.TempDir()
	for round := range 10 {
		path := filepath.Join(dir, strconv.Itoa(round))
		var all sync.WaitGroup
		for token := range int64(20) {
			all.Go(func() {
				if err := write(path, token, strconv.AppendInt(nil, token, 10)); err != nil {
					assert.ErrorIs(t, err, errStale)
				}
			})
		}
		all.Wait()
		has(t, path, "19")
		has(t, path+".token", "19\n")
	}
}
