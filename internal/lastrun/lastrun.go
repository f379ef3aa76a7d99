// Package lastrun formats the value that Once, OncePer and dlock run -once-per
// store beside a lock.
package lastrun

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Run is the record of a job's latest runs in the value of its lock. Programs
// read it from "dlock last -json", so do not rename the fields.
type Run struct {
	Lock      string    `json:"lock"`
	Succeeded time.Time `json:"succeeded,omitzero"` // time of the last success
	Failed    time.Time `json:"failed,omitzero"`    // start of the last run if it failed
	Status    *int      `json:"status,omitempty"`   // exit status of the last run
	Node      string    `json:"node,omitempty"`     // node of the last run
}

// String formats r as the value of a lock. In older values the node is missing.
func (r Run) String() string {
	succeeded := "-"
	if !r.Succeeded.IsZero() {
		succeeded = r.Succeeded.UTC().Format(time.RFC3339Nano)
	}
	if r.Failed.IsZero() {
		return succeeded + " " + r.Node
	}
	return fmt.Sprintf("%s failed %s %d %s", succeeded, r.Failed.UTC().Format(time.RFC3339), *r.Status, r.Node)
}

// Parse parses a lock's value. An empty one gives the zero Run.
func Parse(value []byte) (r Run, err error) {
	if len(value) == 0 {
		return r, nil
	}
	succeeded, node, _ := strings.Cut(string(value), " ")
	r.Node, r.Status = node, new(int)
	if succeeded != "-" {
		r.Succeeded, err = time.Parse(time.RFC3339Nano, succeeded)
	}
	if failed := strings.SplitN(node, " ", 4); err == nil && failed[0] == "failed" && len(failed) == 4 {
		r.Node = failed[3]
		if r.Failed, err = time.Parse(time.RFC3339, failed[1]); err == nil {
			*r.Status, err = strconv.Atoi(failed[2])
		}
	}
	if err != nil || r.Succeeded.IsZero() && r.Failed.IsZero() {
		return Run{}, errors.New("the value beside the lock is not the time of a run: use another lock for it")
	}
	return r, nil
}
