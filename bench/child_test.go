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

func TestErrorOfAChildIsReturned(t *testing.T) {
	require.EqualError(t, shell(t, `read a; echo error no quorum; read b`).prepare(work.Plan{}), "no quorum")
}

func TestEndOfAChildIsAnError(t *testing.T) {
	require.ErrorContains(t, shell(t, `read a`).prepare(work.Plan{}), "the child has ended")
}

func TestChildThatDoesNotAnswerIsAnError(t *testing.T) {
	c := shell(t, `read a; read b`)
	_, err := c.ask("go", "report", time.Millisecond)
	require.ErrorContains(t, err, "no answer to go within 1ms")
	c.kill()
}
