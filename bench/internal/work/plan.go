// Package work runs the rounds of the benchmark with the Go libraries, in child
// processes of bench. peers/Bench.java and peers/bench.py do the same for Java and
// Python.
//
// A child answers each line on its standard input with one line on its standard
// output, or with "error" and the reason, and exits when its input ends:
//
//	prepare {plan}    ready              the sessions are open, the contenders wait
//	go                report {report}    the measured part is done
//	end               ended              the sessions are closed
//
// # Compatibility
//
// With bench -against, one child is built from an older revision of this
// repository, so these stay the same:
//
//   - the nested module bench, whose program is a child if it gets -child LIBRARY;
//   - the names of the libraries, and what each name stands for;
//   - the commands, the answers, and the JSON names and units in Plan and Report;
//   - what a child does for each kind of plan.
//
// A change may add a library, a kind of plan, or a field. A new field of Plan is
// omitted while it is zero, and zero means what a child did before the field existed.
// An older child refuses plans that use the field.
package work

// Plan describes one round of a benchmark. A field whose comment begins with
// kinds of plan, such as "loop, try:", is ignored by the other kinds.
type Plan struct {
	Kind       string `json:"kind"`   // Loop, Drain, Try or Pass
	Server     string `json:"server"` // host:port, or several separated by commas
	Path       string `json:"path"`   // path of the lock; new in each round
	Sessions   int    `json:"sessions"`
	Contenders int    `json:"contenders"` // the i-th uses session i mod Sessions
	Reads      int    `json:"reads"`      // loop: percentage of acquisitions that are shared
	Held       bool   `json:"held"`       // try: another session holds the lock throughout
	Millis     int    `json:"millis"`     // loop, try: duration; pass: pause before each release
	Count      int    `json:"count"`      // pass: number of hand-overs
	Untimed    int    `json:"lead"`       // drain: grants before the measurement starts
	Timeout    int    `json:"timeout"`    // session timeout in seconds
}

const (
	// Loop: every contender locks and unlocks until the time is up.
	Loop = "loop"
	// Drain: all contenders wait behind a holder, which releases the lock
	// on the command "go". Each contender unlocks as soon as it has the lock.
	Drain = "drain"
	// Try: every contender tries to take the lock until the time is up, and unlocks
	// it after each success.
	Try = "try"
	// Pass: two sessions pass the lock to each other, measured from just before the
	// unlock to the grant.
	Pass = "pass"
)

// Report is the result of a round.
type Report struct {
	Seconds   float64 `json:"seconds"`   // duration of the measured part
	Counts    []int64 `json:"counts"`    // acquisitions of each contender
	Tries     int64   `json:"tries"`     // try: attempts, successful or not
	Latencies []int64 `json:"latencies"` // in ns, of one contender's loop or hand-overs
	Allocs    int64   `json:"allocs"`    // memory allocations; -1 if unknown
}
