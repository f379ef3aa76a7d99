package main

import (
	"context"
	"io"
	"log"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/memdriver"
)

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard)
	os.Exit(leakcheck.After(m.Run()))
}

func TestTheProgramEndsAtASignal(t *testing.T) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM) // keeps signals from killing the test
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		main()
	}()
	for {
		require.NoError(t, syscall.Kill(os.Getpid(), syscall.SIGTERM))
		select {
		case <-ended:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

type record struct {
	mu     sync.Mutex
	events []string
}

func (r *record) add(event string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, event)
}

func (r *record) took() []string {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	events := slices.Clone(r.events)
	r.events = nil
	return events
}

func TestAnotherMachineTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		var seen, worked record
		machine := func(addr string) (stop context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			client := dlock.NewClient(store)
			var running sync.WaitGroup
			running.Go(func() {
				err := campaign(ctx, client, addr, func(ctx context.Context, _ int64) error {
					worked.add(addr)
					<-ctx.Done()
					time.Sleep(3 * time.Second) // the end of its last step
					worked.add("-" + addr)
					return nil
				})
				assert.True(t, err == nil || ctx.Err() != nil, err)
			})
			synctest.Wait()
			return func() {
				cancel()
				running.Wait()
				require.NoError(t, client.Close())
			}
		}
		observer := dlock.NewClient(store)
		ctx, cancel := context.WithCancel(t.Context())
		var following sync.WaitGroup
		following.Go(func() { follow(ctx, observer.Election("scheduler"), seen.add) })
		assert.Equal(t, []string{""}, seen.took())

		stopA, stopB := machine("a:80"), machine("b:80")
		assert.Equal(t, []string{"a:80"}, seen.took())
		assert.Equal(t, []string{"a:80", "a:80", "a:80"}, worked.took())

		stopA() // as SIGTERM does
		assert.Equal(t, []string{"b:80"}, seen.took())
		assert.Equal(t, []string{"-a:80", "-a:80", "-a:80", "b:80", "b:80", "b:80"}, worked.took(), "b begins when a has ended")

		store.Faults().ExpireAll() // ends b's and the observer's sessions
		time.Sleep(10 * time.Second)
		assert.Equal(t, []string{"-b:80", "-b:80", "-b:80", "b:80", "b:80", "b:80"}, worked.took(), "b campaigns again")
		leader, err := observer.Election("scheduler").Leader(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "b:80", leader.Record.Data)
		stopB()
		cancel()
		following.Wait()
		require.NoError(t, observer.Close())
	})
}
