package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
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

// lastRun is what a lock's value says about the runs of its job, and what
// "dlock last -json" prints. Programs read the fields, so do not rename them.
type lastRun struct {
	Lock      string `json:"lock"`
	Succeeded string `json:"succeeded,omitempty"` // time of the last success
	Failed    string `json:"failed,omitempty"`    // start of the last run, if it has failed
	Status    *int   `json:"status,omitempty"`    // exit status of the last run
	Node      string `json:"node,omitempty"`      // node of the last run
}

// String formats the lock's value after a failed run. It begins with the last
// success, like the value that package recipes writes after a success.
func (r lastRun) String() string {
	succeeded := r.Succeeded
	if succeeded == "" {
		succeeded = "-"
	}
	return fmt.Sprintf("%s failed %s %d %s", succeeded, r.Failed, *r.Status, r.Node)
}

func parseLast(value string) (r lastRun) {
	r.Succeeded, r.Node, _ = strings.Cut(value, " ")
	if r.Succeeded == "-" {
		r.Succeeded = ""
	}
	if failed := strings.SplitN(r.Node, " ", 4); len(failed) == 4 && failed[0] == "failed" {
		if status, err := strconv.Atoi(failed[2]); err == nil {
			return lastRun{Succeeded: r.Succeeded, Failed: failed[1], Status: &status, Node: failed[3]}
		}
	}
	if r.Succeeded != "" {
		r.Status = new(int)
	}
	return r
}

// last runs "dlock last".
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
	if err != nil {
		return t.failed(err)
	}
	run := parseLast(string(value))
	run.Lock = arguments[0]
	if t.json {
		_ = json.NewEncoder(stdout).Encode(run) // output.status reports write errors
	} else {
		t.say("the store is " + t.storeName())
		fmt.Fprintln(stdout, run.text(time.Now()))
	}
	if run.Succeeded == "" && run.Failed == "" {
		return failedStatus
	}
	return 0
}

func (r lastRun) text(now time.Time) string {
	ago := func(at string) string {
		t, err := time.Parse(time.RFC3339, at)
		if err != nil {
			return cell(at)
		}
		return fmt.Sprintf("%s, %s ago", t.Format(time.RFC3339), period(now.Sub(t)))
	}
	name, succeeded := cell(r.Lock), "never succeeded"
	if r.Succeeded != "" {
		succeeded = "succeeded last at " + ago(r.Succeeded)
	}
	switch {
	case r.Failed != "":
		return fmt.Sprintf("%s failed with exit status %d on %s at %s; it %s", name, *r.Status, r.host(), ago(r.Failed), strings.Replace(succeeded, "succeeded last", "had succeeded", 1))
	case r.Succeeded == "":
		return name + " has never run"
	}
	return fmt.Sprintf("%s %s, with exit status 0 on %s", name, succeeded, r.host())
}

// host returns the host in the node's name, or the whole name if it has none.
func (r lastRun) host() string {
	prefix, _, ok := driver.ParseName(r.Node)
	if host, found := strings.CutSuffix(prefix, "-W-"); ok && found {
		return cell(host)
	}
	return cell(r.Node)
}
