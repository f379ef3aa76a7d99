// Package work does the rounds of the benchmark with the Go libraries. It runs in
// child processes of bench. peers/Bench.java and peers/bench.py do the same for
// Java and Python.
//
// A child reads commands from its standard input, one on each line, and answers
// each command with one line on its standard output:
//
//	prepare {plan}    ready              the sessions are open, the contenders wait
//	go                report {report}    the measured part is done
//	end               ended              the sessions are closed
//
// After a failure the answer is "error" and the reason. The child exits when its
// input ends.
//
// # Compatibility
//
// With bench -against, one child is built from an older revision of this
// repository. The following therefore stays the same in all revisions:
//
//   - the nested module bench, whose program is a child if it gets -child LIBRARY;
//   - the names of the libraries, and what each name stands for;
//   - the commands, the answers, and the JSON names and units in Plan and Report;
//   - what a child does for each kind of plan.
//
// A change may add a library, a kind of plan, or a field. A new field of Plan is
// left out of the JSON while it is zero, and zero means what a child did before the
// field existed. An older child then runs plans that do not use the field, and
// refuses plans that do.
package work

// Plan describes one round. If the comment of a field begins with kinds of
// plans, such as "loop, try:", only plans of these kinds use the field.
type Plan struct {
	Kind       string `json:"kind"`       // Loop, Drain, Try or Pass
	Server     string `json:"server"`     // host:port, or several of them separated by commas
	Path       string `json:"path"`       // path of the lock; each round uses a new path
	Sessions   int    `json:"sessions"`   // number of sessions
	Contenders int    `json:"contenders"` // number of contenders; the i-th uses session i mod Sessions
	Reads      int    `json:"reads"`      // loop: percentage of acquisitions that are shared
	Held       bool   `json:"held"`       // try: one more session holds the lock all the time
	Millis     int    `json:"millis"`     // loop, try: duration; pass: pause before each release
	Count      int    `json:"count"`      // pass: number of hand-overs
	Untimed    int    `json:"lead"`       // drain: number of grants before the measurement starts
	Timeout    int    `json:"timeout"`    // timeout of the sessions, in seconds

	Hold int `json:"hold,omitempty"` // drain: how long each contender holds the lock, in milliseconds
}

// The kinds of plans.
const (
	// Loop: every contender locks and unlocks until the time is up.
	Loop = "loop"
	// Drain: one session holds the lock and all contenders wait for it. On the
	// command "go" the holder releases the lock. Each contender unlocks as soon
	// as it is granted the lock, or after Plan.Hold. With Plan.Hold, the times from
	// just before an unlock to the next grant are measured, too.
	Drain = "drain"
	// Try: every contender tries to take the lock, and unlocks it after each
	// success, until the time is up.
	Try = "try"
	// Pass: two sessions pass the lock to each other. The measured time is that from
	// just before the unlock to the grant.
	Pass = "pass"
)

// Report is the result of a round.
type Report struct {
	Seconds   float64 `json:"seconds"`   // duration of the measured part
	CPU       float64 `json:"cpu"`       // seconds of processor time of the child, user and system
	Counts    []int64 `json:"counts"`    // acquisitions of each contender
	Tries     int64   `json:"tries"`     // try: number of attempts, with and without success
	Latencies []int64 `json:"latencies"` // in nanoseconds: of each lock and unlock in a loop with one contender, of each timed hand-over in pass, and in drain with a Hold
	Allocs    int64   `json:"allocs"`    // allocations of memory; -1 if the child cannot count them
}
