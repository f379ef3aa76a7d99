//go:build unix

package command

import (
	"context"
	"encoding/json"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/memdriver"
)

// noticeFunc is called with each notice, before the holder process goes on.
type noticeFunc func(notice)

func (f noticeFunc) Write(line []byte) (int, error) {
	var n notice
	err := json.Unmarshal(line, &n)
	f(n)
	return len(line), err
}

// runHolder does a holder process's work in this process, with a command that
// exits with status 7. It counts the nodes that are left before the session ends.
func runHolder(t *testing.T, store *memdriver.Store, r runSettings, on func(h *holderProcess, n notice)) (status, left int) {
	sh, err := exec.LookPath("sh")
	require.NoError(t, err)
	r.Driver, r.Name, r.Path, r.Command = "shared", "l", sh, []string{"sh", "-c", "exit 7"}
	h := &holderProcess{settings: r, orphaned: make(chan struct{}), exited: make(chan syscall.WaitStatus, 1), alone: make(chan struct{})}
	h.notices = json.NewEncoder(noticeFunc(func(n notice) { on(h, n) }))
	h.ctx, h.cancel = context.WithCancelCause(t.Context())
	defer h.cancel(nil)
	defer h.close()
	status = h.run()
	return status, store.Stats().Nodes
}

func TestASignalBetweenGrantAndStartRunsNothing(t *testing.T) {
	for _, oncePer := range []time.Duration{0, time.Hour} {
		onStore(t, func(t *testing.T, store *memdriver.Store) {
			status, left := runHolder(t, store, runSettings{OncePer: oncePer}, func(h *holderProcess, n notice) {
				if n.Granted > 0 {
					h.take(order{Signal: syscall.SIGTERM})
				}
				assert.Zero(t, n.Started)
			})
			assert.Equal(t, signalBaseStatus+int(syscall.SIGTERM), status)
			assert.Zero(t, left)
		})
	}
}

func TestHoldCountsFromTheGrantAndEndsAtASignal(t *testing.T) {
	for interrupt, want := range map[bool]time.Duration{false: time.Hour, true: 20 * time.Minute} {
		onStore(t, func(t *testing.T, store *memdriver.Store) {
			other := held(t, client(t, store, "web1"), "l")
			time.AfterFunc(2*time.Hour, func() { assert.NoError(t, other.Unlock()) })
			var granted time.Time
			status, left := runHolder(t, store, runSettings{Hold: time.Hour, Max: 30 * time.Minute}, func(h *holderProcess, n notice) {
				switch {
				case n.Granted > 0:
					granted = time.Now()
				case n.Over:
					time.Sleep(20 * time.Minute) // as if the command had run for so long
					if interrupt {
						h.take(order{Signal: syscall.SIGTERM})
					}
				}
			})
			assert.Equal(t, want, time.Since(granted))
			assert.Equal(t, 7, status, "neither the wait nor -hold counts for -max, and the signal is not for the command")
			assert.Zero(t, left)
		})
	}
}

func TestATryLimitsTheTimeForTheStoreAndDoesNotWaitForTheLock(t *testing.T) {
	ignore := func(*holderProcess, notice) {}
	for wait, limit := range map[time.Duration]time.Duration{0: tryFor, 3 * time.Second: 3 * time.Second, 30 * time.Second: 30 * time.Second} {
		onStore(t, func(t *testing.T, store *memdriver.Store) {
			lock, began := held(t, client(t, store, "web1"), "l"), time.Now()
			status, _ := runHolder(t, store, runSettings{Try: true, Wait: wait, Locked: lockedStatus}, ignore)
			assert.Equal(t, lockedStatus, status)
			assert.Zero(t, time.Since(began))
			require.NoError(t, lock.Unlock())
			shared = silent{}
			status, _ = runHolder(t, store, runSettings{Try: true, Wait: wait, Locked: lockedStatus}, ignore)
			assert.Equal(t, storeStatus, status)
			assert.Equal(t, limit, time.Since(began))
		})
	}
}

func TestASignalAfterTheUnlockEndsTheHolderProcessAndKeepsTheStatus(t *testing.T) {
	holder := exec.Command("sleep", "600")
	require.NoError(t, holder.Start())
	s := &supervisor{settings: &runSettings{}, holder: holder.Process, exited: make(chan syscall.WaitStatus, 1)}
	status := 5
	s.take(notice{Status: &status})
	s.forward(syscall.SIGTERM)
	_ = holder.Wait()
	s.exited <- holder.ProcessState.Sys().(syscall.WaitStatus)
	assert.Equal(t, status, s.end())
}
