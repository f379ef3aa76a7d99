package main

import (
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/bench/internal/work"
)

func shell(t *testing.T, script string) *child {
	t.Helper()
	c, err := startChild(exec.Command("/bin/sh", "-c", script))
	require.NoError(t, err)
	t.Cleanup(c.stop)
	return c
}

func TestChildIsPreparedMeasuredAndEnded(t *testing.T) {
	c := shell(t, `read a; echo ready; read b; echo 'report {"seconds":2,"counts":[3]}'; read c; echo ended; read d`)
	require.NoError(t, c.prepare(work.Plan{}))
	r, err := c.measure(work.Plan{})
	require.NoError(t, err)
	require.Equal(t, []int64{3}, r.Counts)
	require.NoError(t, c.end())
}

func TestErrorOfAChildIsReturned(t *testing.T) {
	require.EqualError(t, shell(t, `read a; echo error no quorum; read b`).prepare(work.Plan{}), "no quorum")
}

func TestEndOfAChildIsAnErrorWithItsStandardError(t *testing.T) {
	err := shell(t, `read a; echo "out of memory" >&2`).prepare(work.Plan{})
	require.ErrorContains(t, err, "the child has ended")
	require.ErrorContains(t, err, "out of memory")
}

func TestChildThatDoesNotAnswerIsAnError(t *testing.T) {
	c := shell(t, `read a; read b`)
	_, err := c.ask("go", "report", time.Millisecond)
	require.ErrorContains(t, err, "no answer to go within 1ms")
	c.kill()
}
