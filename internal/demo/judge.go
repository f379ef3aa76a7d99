package demo

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/dlock-go/dlock"
)

// verdict is the outcome of a run of the demo.
type verdict struct {
	held        []*attempt // attempts that held the lock, in the order of their grants
	counts      [killed + 1]int
	checks      []check
	anomalies   []string // signs, seen by workers, that the lock did not exclude others
	errs        []string // errors of the store and of the demo itself
	note        string
	interrupted bool
}

// check is the outcome of checking one rule, such as mutual exclusion.
type check struct {
	name, fine string
	faults     []string
}

// judge checks the rules of the lock and that the counter lost no increment. It
// also reports the errors of failed attempts.
func judge(attempts []*attempt, count counter) *verdict {
	v := judgeLock(attempts)
	var made int64
	for _, t := range attempts {
		made += int64(t.Increments)
	}
	anomalies := v.anomalies
	if value, _, err := count.read(); err != nil {
		v.errs = append(v.errs, err.Error())
	} else if value != made {
		anomalies = append(anomalies, fmt.Sprintf("it is %d in the end, after %d increments", value, made))
	}
	v.checks = slices.Insert(v.checks, 1, check{"counter", fmt.Sprintf("none of %d increments was lost", made), anomalies})
	return v
}

// judgeLock is judge without the check of the counter.
func judgeLock(attempts []*attempt) *verdict {
	v := new(verdict)
	for _, t := range attempts {
		v.counts[t.Outcome]++
		if t.Outcome == failed {
			v.errs = append(v.errs, t.Worker+": "+t.Err)
		}
		if t.Held {
			v.held = append(v.held, t)
		}
		if t.Anomaly != "" {
			v.anomalies = append(v.anomalies, t.Anomaly)
		}
	}
	slices.SortStableFunc(v.held, func(a, b *attempt) int {
		return cmp.Or(cmp.Compare(a.Granted, b.Granted), cmp.Compare(a.Token, b.Token))
	})
	v.checks = []check{
		{"alone", "no other worker held the lock together with a writer", overlaps(v.held)},
		{"order", "first come, first served, if two could not share the lock", queueJumps(v.held)},
		{"tokens", "each above those of all earlier writers", staleTokens(v.held)},
	}
	return v
}

// conflicts compares each hold with one earlier hold that conflicts with it:
// the one with the greatest key. It returns the faults that check finds. A
// reader conflicts with writers only, a writer with every holder.
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

// overlaps describes each hold that began before a conflicting hold had ended.
func overlaps(held []*attempt) []string {
	return conflicts(held, func(t *attempt) int64 { return int64(t.Ended) }, func(t, earlier *attempt) string {
		if t.Granted >= earlier.Ended {
			return ""
		}
		return fmt.Sprintf("%s held it %s to %s, together with %s, %s to %s",
			t.label(), seconds(t.Granted), seconds(t.Ended), earlier.label(), seconds(earlier.Granted), seconds(earlier.Ended))
	})
}

// queueJumps describes each hold that began before a conflicting hold that was
// ahead in the queue. Sequences of different epochs are not comparable.
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

// staleTokens describes each token that is not greater than those of all
// earlier writers. With such a token, a resource could not tell a late write
// from a valid one.
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

func seconds(d time.Duration) string { return fmt.Sprintf("%.3fs", d.Seconds()) }

func (v *verdict) violated() bool {
	return slices.ContainsFunc(v.checks, func(c check) bool { return len(c.faults) > 0 })
}

// status returns the exit status. A run in which no worker held the lock is
// bad, because nothing was checked.
func (v *verdict) status() int {
	if v.violated() || len(v.errs) > 0 || len(v.held) == 0 {
		return statusBad
	}
	return statusOK
}

func (v *verdict) write(w io.Writer) {
	for _, c := range v.checks {
		if len(c.faults) == 0 {
			fmt.Fprintf(w, "  ok        %-8s  %s\n", c.name, c.fine)
		}
		fmt.Fprint(w, list(fmt.Sprintf("  VIOLATED  %-8s  ", c.name), c.faults))
	}
	readers := 0
	for _, t := range v.held {
		if t.Mode == dlock.Shared {
			readers++
		}
	}
	fmt.Fprintf(w, "\nGrants: %d shared, %d exclusive. Gave up: %d. Lost: %d. Interrupted: %d.\n",
		readers, len(v.held)-readers, v.counts[timedOut], v.counts[lost], v.counts[interrupted])
	fmt.Fprint(w, v.note, list("Error: ", v.errs))
	fmt.Fprintf(w, "\nVERDICT: %s\n", v.word())
}

func (v *verdict) word() string {
	switch {
	case v.violated():
		return "VIOLATED, this is no read-write lock"
	case len(v.errs) > 0:
		return "no rule was broken, but there were errors"
	case len(v.held) == 0:
		return "nothing was checked, no worker got the lock"
	case v.interrupted:
		return "OK as far as it went, interrupted"
	}
	return "OK"
}
