package main

import (
	"context"
	"errors"
	"io"
	"log"
	"os"
	"os/signal"
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
	signal.Notify(signals, syscall.SIGTERM) // or a signal outside main kills the test
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

type steps struct {
	mu     sync.Mutex
	shards map[string]map[int]bool
}

func (s *steps) of(machine string) step {
	return func(_ context.Context, shard int, token int64) (time.Duration, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.shards[machine] == nil {
			s.shards[machine] = make(map[int]bool)
		}
		s.shards[machine][shard] = true
		return time.Second, errors.New("a step that fails does not end the work")
	}
}

func (s *steps) nextSecond() map[string]int {
	synctest.Wait()
	s.mu.Lock()
	s.shards = make(map[string]map[int]bool)
	s.mu.Unlock()
	time.Sleep(time.Second)
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	count := make(map[string]int)
	for machine, shards := range s.shards {
		count[machine] = len(shards)
	}
	return count
}

func TestMachinesDivideTheShards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		done := &steps{shards: make(map[string]map[int]bool)}
		machine := func(name string) (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			client := dlock.NewClient(store, dlock.WithHostname(name))
			var running sync.WaitGroup
			running.Go(func() { assert.ErrorIs(t, serve(ctx, client, done.of(name)), context.Canceled) })
			synctest.Wait()
			return func() {
				cancel()
				running.Wait()
				require.NoError(t, client.Close())
			}
		}
		stopA := machine("a")
		assert.Equal(t, map[string]int{"a": 16}, done.nextSecond())
		stopB := machine("b")
		assert.Equal(t, map[string]int{"a": 8, "b": 8}, done.nextSecond())
		stopA()
		assert.Equal(t, map[string]int{"b": 16}, done.nextSecond())
		store.Faults().ExpireAll()
		time.Sleep(10 * time.Second)
		assert.Equal(t, map[string]int{"b": 16}, done.nextSecond())
		stopB()
	})
}
