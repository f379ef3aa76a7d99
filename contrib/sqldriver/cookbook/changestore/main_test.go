package main

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/internal/pgtest"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.After(pgtest.Main(m))) }

// The function start opens the clients that a program has in the given step.
func stores(t *testing.T) (start func(step int) clients) {
	server := pgtest.Shared(t)
	oldDSN, newDSN := filepath.Join(t.TempDir(), "locks.db"), server.DSN("schema="+server.Schema())
	return func(step int) clients {
		c, err := open(step, oldDSN, newDSN)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, c.close()) })
		return c
	}
}

type counter struct {
	n, holders int
	kept       stamp
}

func (c *counter) add(t *testing.T, stamps []stamp) {
	c.holders++
	n := c.n
	time.Sleep(5 * time.Millisecond) // long enough for another holder to enter
	assert.Equal(t, 1, c.holders, "two holders")
	kept, err := pass(c.kept, stamps)
	assert.NoError(t, err, "%v after %v", stamps, c.kept)
	c.n, c.kept = n+1, kept
	c.holders--
}

// add uses no mutex, so the race detector also reports simultaneous holders.
func TestNoTwoHoldersDuringTheChange(t *testing.T) {
	start := stores(t)
	const each = 5
	var shared counter
	want := 0
	for _, steps := range [][]int{{1, 1, 1}, {1, 2, 2}, {2, 2, 2}, {2, 2, 3}, {3, 3, 3}} {
		var all sync.WaitGroup
		var programs []clients
		for _, step := range steps {
			c := start(step)
			require.NoError(t, c.withLock(t.Context(), "connect", func(context.Context, []stamp) error { return nil }))
			programs = append(programs, c)
		}
		for _, c := range programs {
			all.Go(func() {
				for range each {
					assert.NoError(t, c.withLock(t.Context(), "stock/42", func(_ context.Context, stamps []stamp) error {
						shared.add(t, stamps)
						return nil
					}))
				}
			})
		}
		all.Wait()
		want += len(steps) * each
		require.Equal(t, want, shared.n, "steps %v", steps)
	}
	assert.EqualValues(t, 1, shared.kept.epoch)
}

// Programs exclude each other if their steps are equal or adjacent.
func TestWhichStepsExcludeEachOther(t *testing.T) {
	start := stores(t)
	programs := []clients{start(1), start(2), start(3)}
	for a, one := range programs {
		for b, two := range programs {
			assert.NoError(t, one.withLock(t.Context(), "stock/42", func(context.Context, []stamp) error {
				apart := max(a-b, b-a) < 2
				limit := time.Minute
				if apart {
					limit = 300 * time.Millisecond
				}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				entered := false
				err := two.withLock(ctx, "stock/42", func(context.Context, []stamp) error {
					entered = true
					return nil
				})
				if apart {
					assert.ErrorIs(t, err, dlock.ErrTimeout, "steps %d and %d", a+1, b+1)
				} else {
					assert.NoError(t, err, "steps %d and %d", a+1, b+1)
				}
				assert.Equal(t, !apart, entered)
				return nil
			}))
		}
	}
}

func TestLateWritesAreRefused(t *testing.T) {
	step1 := func(old int64) []stamp { return []stamp{{0, old}} }
	step2 := func(old, new int64) []stamp { return []stamp{{0, old}, {1, new}} }
	step3 := func(new int64) []stamp { return []stamp{{1, new}} }
	for _, c := range []struct {
		name   string
		kept   stamp
		stamps []stamp
		want   stamp // zero if the write is refused
	}{
		{"step 1 after an earlier holder", stamp{0, 4}, step1(5), stamp{0, 5}},
		{"step 1 once more", stamp{0, 5}, step1(5), stamp{0, 5}},
		{"late step 1", stamp{0, 6}, step1(5), stamp{}},
		{"step 2 beside step 1", stamp{0, 5}, step2(6, 1), stamp{0, 6}},
		{"late step 2", stamp{0, 7}, step2(6, 1), stamp{}},
		{"the first of step 3", stamp{0, 7}, step3(2), stamp{1, 2}},
		{"step 2 beside step 3", stamp{1, 2}, step2(8, 3), stamp{1, 3}},
		{"late step 2 after step 3", stamp{1, 4}, step2(8, 3), stamp{}},
		{"late step 1 after step 3", stamp{1, 4}, step1(99), stamp{}},
		{"late step 3", stamp{1, 4}, step3(3), stamp{}},
	} {
		kept, err := pass(c.kept, c.stamps)
		if c.want == (stamp{}) {
			assert.ErrorIs(t, err, errStale, c.name)
			assert.Equal(t, c.kept, kept, c.name)
		} else {
			assert.NoError(t, err, c.name)
			assert.Equal(t, c.want, kept, c.name)
		}
	}
}

func TestTheProgram(t *testing.T) {
	t.Chdir(t.TempDir())
	args := os.Args
	defer func() { os.Args = args }()
	server := pgtest.Shared(t)
	for _, step := range []string{"1", "2", "3"} {
		flag.CommandLine = flag.NewFlagSet(step, flag.PanicOnError)
		os.Args = []string{"changestore", "-step", step, "-new", server.DSN("schema=" + server.Schema())}
		main()
	}
}
