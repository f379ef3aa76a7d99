// Package work does what a round of the benchmark asks for, with the Go libraries. It is the part
// that runs in child processes; peers/Bench.java and peers/bench.py are the same for Java and Python.
//
// A child obeys one line of its standard input at a time and answers each with one line:
//
//	prepare {plan}    ready               sessions are open, contenders wait for go (or for the lock)
//	go                report {report}     the part that is measured has been done
//	end               ended               sessions are closed
//
// or with "error text" where that has not worked. It exits when its input ends.
//
// # What stays as it is
//
// bench -against runs a child that was built from an older revision of this
// repository. These therefore stay the same from revision to revision:
//
//   - the nested module bench, whose program is a child if it gets -child LIBRARY;
//   - the names of libraries, and what they stand for;
//   - the orders, the answers, and the JSON names and units in Plan and Report;
//   - what a child does for a kind of plan.
//
// A change adds: a library, a kind of plan, or a field. A new field of Plan is
// omitted from the JSON while it is zero, and zero means what was done before the
// field existed. So an older child does plans that do not use the field, and
// refuses the others.
package work

// Plan says what to do in one round.
type Plan struct {
	Kind       string `json:"kind"` // loop, drain, try or pass
	Server     string `json:"server"`
	Path       string `json:"path"` // of the lock, new in each round
	Sessions   int    `json:"sessions"`
	Contenders int    `json:"contenders"` // spread over the sessions, the i-th on session i mod Sessions
	Reads      int    `json:"reads"`      // loop: per cent of the acquisitions that are shared
	Held       bool   `json:"held"`       // try: one more session holds the lock all the time
	Millis     int    `json:"millis"`     // loop, try: for how long; pass: pause before each release
	Count      int    `json:"count"`      // pass: how many
	Lead       int    `json:"lead"`       // drain: how many of the contenders are let in before time, processor and memory count
	Timeout    int    `json:"timeout"`    // of sessions, in seconds
}

// The kinds of plans.
const (
	// Loop: every contender locks and unlocks until the time is up.
	Loop = "loop"
	// Drain: one holds, all contenders wait; go releases, and each of them unlocks as soon as it is let in.
	Drain = "drain"
	// Try: every contender tries the lock, and unlocks it if it was won, until the time is up.
	Try = "try"
	// Pass: two sessions pass the lock to each other; it takes the time from before the unlock to
	// the grant.
	Pass = "pass"
)

// Report is what a round has brought.
type Report struct {
	Seconds   float64 `json:"seconds"`
	CPU       float64 `json:"cpu"`       // seconds of this process, user and system
	Counts    []int64 `json:"counts"`    // acquisitions, by contender
	Tries     int64   `json:"tries"`     // try: with and without success
	Latencies []int64 `json:"latencies"` // nanoseconds: loop with one contender (lock and unlock), pass
	Allocs    int64   `json:"allocs"`    // of memory; -1 where that is not known
}
