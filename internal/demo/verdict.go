package demo

import (
	"fmt"
	"io"
	"slices"

	"github.com/dlock-go/dlock"
)

// verdict is the result of a run.
type verdict struct {
	attempts    []*attempt
	total       total
	checks      []check
	errs        []error // the errors that the store returned
	notes       []string
	interrupted bool
}

// check is one rule, with the text to print if it was kept, or the faults that
// were found.
type check struct {
	name, fine string
	faults     []string
}

// maxFaults is how many violations of one rule, and how many errors, are printed.
const maxFaults = 3

func (v *verdict) add(name, fine string, faults []string) {
	v.checks = append(v.checks, check{name, fine, faults})
}

// addErrors adds the errors of failed attempts, and those of closing the clients.
func (v *verdict) addErrors(closing []error) {
	for _, t := range v.attempts {
		if t.outcome == failed {
			v.errs = append(v.errs, fmt.Errorf("%s: %w", t.worker, t.err))
		}
	}
	v.errs = append(v.errs, closing...)
}

func (v *verdict) violated() bool {
	return slices.ContainsFunc(v.checks, func(c check) bool { return len(c.faults) > 0 })
}

// held reports whether any worker held the lock. If none did, the run has checked
// nothing.
func (v *verdict) held() bool {
	return slices.ContainsFunc(v.attempts, func(t *attempt) bool { return t.held })
}

func (v *verdict) status() int {
	if v.violated() || len(v.errs) > 0 || !v.held() {
		return statusBad
	}
	return statusOK
}

func (v *verdict) write(w io.Writer, s *settings) {
	for _, c := range v.checks {
		c.write(w)
	}
	fmt.Fprintln(w)
	v.writeCounts(w)
	for _, note := range v.notes {
		fmt.Fprintln(w, note)
	}
	for _, err := range first(maxFaults, v.errs) {
		fmt.Fprintf(w, "Error: %s\n", clean(err.Error()))
	}
	if more := len(v.errs) - maxFaults; more > 0 {
		fmt.Fprintf(w, "Error: and so on, %d more\n", more)
	}
	v.writeScope(w, s)
	fmt.Fprintf(w, "\nVERDICT: %s\n", v.word())
}

func (c check) write(w io.Writer) {
	if len(c.faults) == 0 {
		fmt.Fprintf(w, "  ok        %-8s  %s\n", c.name, c.fine)
		return
	}
	for _, fault := range first(maxFaults, c.faults) {
		fmt.Fprintf(w, "  VIOLATED  %-8s  %s\n", c.name, fault)
	}
	if more := len(c.faults) - maxFaults; more > 0 {
		fmt.Fprintf(w, "  VIOLATED  %-8s  and so on, %d more\n", c.name, more)
	}
}

func first[T any](n int, all []T) []T { return all[:min(len(all), n)] }

func (v *verdict) writeCounts(w io.Writer) {
	var count [killed + 1]int
	var held []*attempt
	var longest *attempt
	for _, t := range v.attempts {
		count[t.outcome]++
		if t.held {
			held = append(held, t)
		}
		if longest == nil || t.waited() > longest.waited() {
			longest = t
		}
	}
	fmt.Fprintf(w, "Grants: %d shared, %d exclusive.", countMode(held, dlock.Shared), countMode(held, dlock.Exclusive))
	if longest != nil {
		fmt.Fprintf(w, " Longest wait: %s, %s.", seconds(longest.waited()), longest.worker)
	}
	fmt.Fprintf(w, "\nGave up: %d. Lost: %d.", count[timedOut], count[lost])
	if n := count[interrupted]; n > 0 {
		fmt.Fprintf(w, " Interrupted: %d.", n)
	}
	fmt.Fprintln(w)
}

// writeScope prints what the verdict covers if other processes may use the lock,
// too.
func (v *verdict) writeScope(w io.Writer, s *settings) {
	switch {
	case v.total.shared:
		fmt.Fprintf(w, "The processes that share %s had reached %d when a worker of this one last held the lock.\n", printable(s.counterFile), v.total.value)
	case s.processes > 1:
		fmt.Fprint(w, "This is about the processes of this run; -counter FILE checks across runs.\n")
	case s.driver != inMemory:
		fmt.Fprint(w, "This is about the workers of this process; -counter FILE checks across processes.\n")
	}
}

func (v *verdict) word() string {
	switch {
	case v.violated():
		return "VIOLATED, this is no read-write lock"
	case len(v.errs) > 0:
		return "no rule was broken, but there were errors"
	case !v.held():
		return "nothing was checked, no worker got the lock"
	case v.interrupted:
		return "OK as far as it went, interrupted"
	}
	return "OK"
}
