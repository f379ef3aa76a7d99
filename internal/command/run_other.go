//go:build !unix

package command

import "io"

const keeperArgument = "keeper of dlock run"

func keep(string) int { return usageStatus }

func supervise(r *runSettings, stderr io.Writer) int {
	r.say(stderr, "not run: this system has no process groups; take the lock in the program, with package dlock")
	return cannotRunStatus
}
