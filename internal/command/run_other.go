//go:build !unix

package command

import "io"

const holderArgument = "holder of dlock run"

func holderMain(string) int { return usageStatus }

func supervise(r *runSettings, stderr io.Writer) int {
	r.say(stderr, "not run: this system has no process groups; take the lock in the program, with package dlock")
	return cannotWatchStatus
}
