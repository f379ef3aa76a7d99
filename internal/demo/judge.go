package demo

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/dlock-go/dlock"
)

// verdict is the result of a run.
type verdict struct {
	attempts    []*attempt
	checks      []check
	total       reading // the last reading of the counter
	shared      bool    // other runs may use the counter, too
	errs        []error // of the store, and of the run itself
	notes       []string
	interrupted bool
}

// check is a rule, with the text to print if it was kept, or the faults found.
type check struct {
	name, fine string
	faults     []string
}

// judge returns which rules the attempts and the counter violate, and the errors
// of failed attempts. Other runs may still change a shared counter, so its total is
// the last reading of a worker that held the lock.
func judge(attempts []*attempt, count counter, shared bool) *verdict {
	v := &verdict{attempts: attempts, shared: shared}
	held := byGrant(attempts)
	for _, t := range attempts {
		if t.Outcome == failed {
			v.errs = append(v.errs, fmt.Errorf("%s: %s", t.Worker, t.Err))
		}
	}
	if !shared {
		var err error
		if v.total, err = readCounter(count); err != nil {
			v.errs = append(v.errs, err)
		}
	} else if len(held) > 0 {
		last := slices.MaxFunc(held, func(a, b *attempt) int { return cmp.Compare(a.Ended, b.Ended) })
		v.total = last.Last
	}
	v.checks = []check{
		{"alone", "no other worker held the lock together with a writer", overlaps(held)},
		v.counterCheck(held),
		{"order", "first come, first served, if two could not share the lock", queueJumps(held)},
		{"tokens", "each above those of all earlier writers", staleTokens(held)},
	}
	return v
}

// conflicts calls check for each hold that has earlier holds in the order which
// exclude it: all of them exclude a writer, and writers exclude a reader. Its second
// argument is the one with the greatest key. The result has the faults found.
func conflicts(order []*attempt, key func(*attempt) int64, check func(t, earlier *attempt) string) (faults []string) {
	var writer, last *attempt
	for _, t := range order {
		earlier := writer
		if t.Mode == dlock.Exclusive {
			earlier = last
		}
		if earlier != nil {
			if fault := check(t, earlier); fault != "" {
				faults = append(faults, fault)
			}
		}
		if last == nil || key(t) > key(last) {
			last = t
		}
		if t.Mode == dlock.Exclusive && (writer == nil || key(t) > key(writer)) {
			writer = t
		}
	}
	return faults
}

// overlaps returns a fault for each hold that began before the end of another one
// that excludes it.
func overlaps(held []*attempt) []string {
	return conflicts(held, func(t *attempt) int64 { return int64(t.Ended) }, func(t, earlier *attempt) string {
		if t.Granted >= earlier.Ended {
			return ""
		}
		return fmt.Sprintf("%s held it %s to %s, together with %s, %s to %s",
			t.label(), seconds(t.Granted), seconds(t.Ended), earlier.label(), seconds(earlier.Granted), seconds(earlier.Ended))
	})
}

// queueJumps returns a fault for each hold that began before one that excludes it
// and was ahead in the queue. Sequences of different epochs cannot be compared.
func queueJumps(held []*attempt) (faults []string) {
	queues := make(map[int64][]*attempt)
	for _, t := range held {
		queues[t.Place.Epoch] = append(queues[t.Place.Epoch], t)
	}
	for _, queue := range queues {
		slices.SortStableFunc(queue, func(a, b *attempt) int { return cmp.Compare(a.Place.Seq, b.Place.Seq) })
		faults = append(faults, conflicts(queue, func(t *attempt) int64 { return int64(t.Granted) }, func(t, ahead *attempt) string {
			if t.Granted >= ahead.Granted {
				return ""
			}
			return fmt.Sprintf("%s held it from %s although %s, from %s, was ahead",
				t.Place.Name, seconds(t.Granted), ahead.Place.Name, seconds(ahead.Granted))
		})...)
	}
	return faults
}

// staleTokens returns a fault for each token that is not above those of all earlier
// writers, so that a resource could not refuse them.
func staleTokens(held []*attempt) (faults []string) {
	var highest *attempt
	for _, t := range held {
		if highest != nil && t.Token <= highest.Token {
			faults = append(faults, fmt.Sprintf("%s got %d, after %s had got %d", t.label(), t.Token, highest.label(), highest.Token))
		}
		if t.Mode == dlock.Exclusive && (highest == nil || t.Token > highest.Token) {
			highest = t
		}
	}
	return faults
}

func (v *verdict) counterCheck(held []*attempt) check {
	c := check{name: "counter"}
	var made int64
	for _, t := range held {
		made += int64(t.Increments)
		if t.Anomaly != "" {
			c.faults = append(c.faults, t.Anomaly)
		}
	}
	writers := countMode(held, dlock.Exclusive)
	switch {
	case v.shared:
		c.fine = fmt.Sprintf("none of %d increments was lost, %d of them were made here", v.total.Increments, made)
	case v.total.Value != made:
		c.faults = append(c.faults, fmt.Sprintf("it is %d in the end, after %d increments", v.total.Value, made))
	case made == int64(writers*incrementsPerHold):
		c.fine = fmt.Sprintf("%d = %d increments x %d exclusive holds, none was lost", made, incrementsPerHold, writers)
	default:
		c.fine = fmt.Sprintf("%d, none was lost; a hold that was cut short made fewer than %d", made, incrementsPerHold)
	}
	return c
}

func countMode(held []*attempt, m dlock.Mode) (n int) {
	for _, t := range held {
		if t.Mode == m {
			n++
		}
	}
	return n
}

// byGrant returns the attempts that held the lock, sorted by their grants.
func byGrant(attempts []*attempt) []*attempt {
	held := slices.DeleteFunc(slices.Clone(attempts), func(t *attempt) bool { return !t.Held })
	slices.SortStableFunc(held, func(a, b *attempt) int {
		return cmp.Or(cmp.Compare(a.Granted, b.Granted), cmp.Compare(a.Token, b.Token))
	})
	return held
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3fs", d.Seconds()) }

func (v *verdict) note(format string, args ...any) {
	v.notes = append(v.notes, fmt.Sprintf(format, args...))
}

func (v *verdict) violated() bool {
	return slices.ContainsFunc(v.checks, func(c check) bool { return len(c.faults) > 0 })
}

// held reports whether any worker held the lock. If none did, the run has checked
// nothing.
func (v *verdict) held() bool {
	return slices.ContainsFunc(v.attempts, func(t *attempt) bool { return t.Held })
}

func (v *verdict) status() int {
	if v.violated() || len(v.errs) > 0 || !v.held() {
		return statusBad
	}
	return statusOK
}

func (v *verdict) write(w io.Writer, s *settings) {
	for _, c := range v.checks {
		if len(c.faults) == 0 {
			fmt.Fprintf(w, "  ok        %-8s  %s\n", c.name, c.fine)
		}
		fmt.Fprint(w, list(fmt.Sprintf("  VIOLATED  %-8s  ", c.name), c.faults))
	}
	fmt.Fprintln(w)
	v.writeCounts(w)
	for _, note := range v.notes {
		fmt.Fprintln(w, note)
	}
	var errs []string
	for _, err := range v.errs {
		errs = append(errs, err.Error())
	}
	fmt.Fprint(w, list("Error: ", errs))
	switch {
	case v.shared:
		fmt.Fprintf(w, "The processes that share %s had reached %d when a worker of this one last held the lock.\n", clean(s.counterFile), v.total.Value)
	case s.processes > 1:
		fmt.Fprint(w, "This is about the processes of this run; -counter FILE checks across runs.\n")
	case s.driver != inMemory:
		fmt.Fprint(w, "This is about the workers of this process; -counter FILE checks across processes.\n")
	}
	fmt.Fprintf(w, "\nVERDICT: %s\n", v.word())
}

func (v *verdict) writeCounts(w io.Writer) {
	var count [killed + 1]int
	longest := new(attempt)
	for _, t := range v.attempts {
		count[t.Outcome]++
		if t.waited() >= longest.waited() {
			longest = t
		}
	}
	held := byGrant(v.attempts)
	fmt.Fprintf(w, "Grants: %d shared, %d exclusive.", countMode(held, dlock.Shared), countMode(held, dlock.Exclusive))
	if longest.Worker != "" {
		fmt.Fprintf(w, " Longest wait: %s, %s.", seconds(longest.waited()), longest.Worker)
	}
	fmt.Fprintf(w, "\nGave up: %d. Lost: %d.", count[timedOut], count[lost])
	if n := count[interrupted]; n > 0 {
		fmt.Fprintf(w, " Interrupted: %d.", n)
	}
	fmt.Fprintln(w)
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
