package demo

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/dlock-go/dlock"
)

type verdict struct {
	held        []*attempt // in the order of their grants
	checks      []*check
	err         error  // from the store or the demo itself
	story       string // what the fault has done
	interrupted bool
}

// check is the outcome of checking one rule, such as mutual exclusion.
type check struct {
	name, fine string
	violations []string
}

func (c *check) violated(format string, args ...any) {
	c.violations = append(c.violations, fmt.Sprintf(format, args...))
}

// judge checks the rules of the lock, and that the counter has lost no number.
func judge(r *run, interrupted bool) *verdict {
	v := &verdict{interrupted: interrupted, err: r.err}
	counter := &check{name: "counter", fine: fmt.Sprintf("it is %d, and no number was lost", r.counter.value)}
	for _, t := range r.attempts {
		if t.Held {
			v.held = append(v.held, t)
		}
		if t.Anomaly != "" {
			counter.violated("%s", t.Anomaly)
		}
	}
	if c := r.counter; c.value != c.sum {
		counter.violated("it is %d in the end, but the numbers add up to %d", c.value, c.sum)
	}
	slices.SortStableFunc(v.held, func(a, b *attempt) int {
		return cmp.Or(cmp.Compare(a.Granted, b.Granted), cmp.Compare(a.Token, b.Token))
	})
	v.checks = append(judgeLock(v.held), counter)
	if r.Fault != "" {
		v.judgeLateWrite(r)
	}
	return v
}

// judgeLock compares each hold with all earlier ones, unless both are shared.
func judgeLock(held []*attempt) []*check {
	alone := &check{name: "alone", fine: "no other worker held the lock together with a writer"}
	order := &check{name: "order", fine: "first come, first served, if two could not share the lock"}
	tokens := &check{name: "tokens", fine: "each above those of all earlier writers"}
	for i, t := range held {
		for _, earlier := range held[:i] {
			if t.Mode == dlock.Shared && earlier.Mode == dlock.Shared {
				continue
			}
			if t.Granted < earlier.Ended {
				alone.violated("%s held it from %s, together with %s, %s to %s",
					t.label(), seconds(t.Granted), earlier.label(), seconds(earlier.Granted), seconds(earlier.Ended))
			}
			// Sequences of different epochs are not comparable.
			if t.Place.Epoch == earlier.Place.Epoch && t.Place.Seq < earlier.Place.Seq {
				order.violated("%s held it from %s although %s, from %s, was ahead",
					earlier.Place.Name, seconds(earlier.Granted), t.Place.Name, seconds(t.Granted))
			}
			// If tokens did not rise, a resource could not tell a late write
			// from a valid one.
			if earlier.Mode == dlock.Exclusive && t.Token <= earlier.Token {
				tokens.violated("%s got %d, after %s had got %d", t.label(), t.Token, earlier.label(), earlier.Token)
			}
		}
	}
	return []*check{alone, order, tokens}
}

// judgeLateWrite checks that the counter has refused the delayed write.
func (v *verdict) judgeLateWrite(r *run) {
	next := slices.IndexFunc(v.held, func(t *attempt) bool { return t.Granted > r.struck })
	late := r.counter.late
	if late == nil || next < 0 {
		if v.err == nil && !v.interrupted {
			v.err = errors.New("the fault was not shown to its end, because a worker lost the lock too early; try again")
		}
		return
	}
	c := &check{name: "late", fine: "the late write was refused"}
	if !late.refused {
		c.violated("the late write of %d was not refused", late.value)
	}
	v.checks = append(v.checks, c)
	v.story = fmt.Sprintf(`
%[1]s was %[2]s just before its write of %[3]d. The store heard nothing from
it any more and ended its session. After %[4]s, %[5]s got the lock and wrote.
Then the write of %[1]s arrived, with token %[6]d, and the counter had seen %[7]d. No
lock can stop a late write. But the token tells the counter to refuse it.
`, r.attempts[0].Worker, faults[r.Fault].done, late.value, seconds(v.held[next].Granted-r.struck),
		v.held[next].Worker, r.attempts[0].Token, r.counter.seen)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3fs", d.Seconds()) }

func (v *verdict) write(w io.Writer) int {
	const most = 3 // limits the printed violations of a rule
	for _, c := range v.checks {
		n := len(c.violations)
		if n == 0 {
			fmt.Fprintf(w, "  ok        %-8s  %s\n", c.name, c.fine)
		}
		for _, text := range c.violations[:min(most, n)] {
			fmt.Fprintf(w, "  VIOLATED  %-8s  %s\n", c.name, clean(text))
		}
		if n > most {
			fmt.Fprintf(w, "  VIOLATED  %-8s  and so on, %d more\n", c.name, n-most)
		}
	}
	fmt.Fprintln(w, v.story)
	if v.err != nil {
		fmt.Fprintf(w, "Error: %s\n", clean(v.err.Error()))
	}
	word, status := v.conclude()
	fmt.Fprintf(w, "VERDICT: %s\n", word)
	return status
}

func (v *verdict) conclude() (string, int) {
	switch {
	case slices.ContainsFunc(v.checks, func(c *check) bool { return len(c.violations) > 0 }):
		return "VIOLATED, this is no read-write lock", statusBad
	case v.err != nil:
		return "no rule was broken, but there was an error", statusBad
	case len(v.held) == 0:
		return "nothing was checked, no worker got the lock", statusBad
	case v.interrupted:
		return "OK as far as it went, interrupted", statusOK
	}
	return "OK", statusOK
}
