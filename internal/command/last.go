package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/lastrun"
)

const lastHelp = `Usage: dlock last [flags] NAME

Tells when the job of the lock NAME ran last, on which machine, and with what
exit status. Runs count if they were started by dlock run -once-per, or by Once
or OncePer of a program, which record no failures. With -json, it prints a JSON
object with the fields lock, succeeded, failed, status and node; succeeded and
failed are times.

A success has the time for which it counts, by the clock of the store, and a
failure that of its start, by the clock of its machine. A run that lost its lock,
or whose machine died, is not recorded.

Exit status: 0, it has run, also if it failed; 1, it has never run, or the store
could not be reached or failed; 2, the arguments are not valid.

Flags:
`

func last(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	t := newTool("last", lastHelp, "the name of a lock", args, stdout, stderr)
	t.flags.BoolVar(&t.json, "json", false, "print JSON")
	arguments, client, status := t.open(1, 1, dlock.WithReadOnly())
	if client == nil {
		return status
	}
	defer client.Close()
	ctx, cancel := t.limit(ctx)
	defer cancel()
	value, _, err := client.RWMutex(arguments[0]).Value(ctx)
	run, bad := lastrun.Parse(value)
	if run.Lock = arguments[0]; bad != nil {
		err = fmt.Errorf("%s: %w", run.Lock, bad)
	}
	if err != nil {
		return t.failed(err)
	}
	if t.json {
		_ = json.NewEncoder(stdout).Encode(run) // output.status reports write errors
	} else {
		t.say("the store is " + t.storeName())
		fmt.Fprintln(stdout, describe(run, time.Now()))
	}
	if run.Status == nil {
		return failedStatus
	}
	return 0
}

func describe(r lastrun.Run, now time.Time) string {
	ago := func(t time.Time) string {
		return fmt.Sprintf("%s, %s ago", t.Format(time.RFC3339), period(now.Sub(t)))
	}
	name, earlier := cell(r.Lock), "never succeeded"
	if !r.Succeeded.IsZero() {
		earlier = "had succeeded at " + ago(r.Succeeded)
	}
	switch {
	case !r.Failed.IsZero():
		return fmt.Sprintf("%s failed with exit status %d%s at %s; it %s", name, *r.Status, onHost(r.Node), ago(r.Failed), earlier)
	case r.Status == nil:
		return name + " has never run"
	}
	return fmt.Sprintf("%s succeeded last at %s, with exit status 0%s", name, ago(r.Succeeded), onHost(r.Node))
}

// onHost returns the text " on HOST", or " on NODE" if the node names no host.
func onHost(node string) string {
	if node == "" { // recorded by an earlier version of dlock
		return ""
	}
	prefix, _, _ := driver.ParseName(node)
	if host, found := strings.CutSuffix(prefix, "-W-"); found {
		node = host
	}
	return " on " + cell(node)
}
