package demo

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock"
)

// total is what the counter says in the end.
type total struct {
	reading
	shared bool // with other processes, so that it need not be what this one has made of it
}

// readTotal reads a counter of this process alone when nobody is at it any more. Of one that is shared
// it takes what was read last under the lock.
func readTotal(c counter, attempts []*attempt) total {
	if m, ok := c.(*memoryCounter); ok {
		return total{reading: reading{m.value.Load(), m.made.Load()}}
	}
	last := new(attempt)
	for _, t := range attempts {
		if t.held && t.ended >= last.ended {
			last = t
		}
	}
	return total{reading: last.last, shared: true}
}

// judge looks for violations of the rules.
func judge(attempts []*attempt, count total) *verdict {
	held := slices.DeleteFunc(slices.Clone(attempts), func(t *attempt) bool { return !t.held })
	v := &verdict{attempts: attempts, total: count}
	v.add("alone", "no writer held it together with anybody", overlaps(held))
	v.add("counter", counterFine(held, count), counterFaults(held, count))
	v.add("order", "first come, first served, where two could not share", queueJumps(held))
	v.add("tokens", "each above those of all writers before", staleTokens(held))
	return v
}

// overlaps finds holds that began before others had ended which they must not meet.
func overlaps(held []*attempt) (faults []string) {
	var writer, anybody *attempt // whose hold ends last, so far
	for _, t := range byGrant(held) {
		other := writer
		if t.mode == dlock.Exclusive {
			other = anybody
		}
		if other != nil && t.granted < other.ended {
			faults = append(faults, fmt.Sprintf("%s held it %s to %s, together with %s, %s to %s",
				t.label(), seconds(t.granted), seconds(t.ended), other.label(), seconds(other.granted), seconds(other.ended)))
		}
		if anybody == nil || t.ended > anybody.ended {
			anybody = t
		}
		if t.mode == dlock.Exclusive && (writer == nil || t.ended > writer.ended) {
			writer = t
		}
	}
	return faults
}

// queueJumps finds grants before those of others who were in front and could not share. Both have to be nodes
// of one incarnation of the queue: sequences say nothing otherwise.
func queueJumps(held []*attempt) (faults []string) {
	queue := slices.SortedStableFunc(slices.Values(held), func(a, b *attempt) int {
		return cmp.Or(cmp.Compare(a.place.Epoch, b.place.Epoch), cmp.Compare(a.place.Seq, b.place.Seq))
	})
	var writer, anybody *attempt // who was granted last, of those in front
	for _, t := range queue {
		if anybody != nil && anybody.place.Epoch != t.place.Epoch {
			writer, anybody = nil, nil
		}
		other := writer
		if t.mode == dlock.Exclusive {
			other = anybody
		}
		if other != nil && t.granted < other.granted {
			faults = append(faults, fmt.Sprintf("%s held it from %s although %s, from %s, was in front",
				printable(t.place.Name), seconds(t.granted), printable(other.place.Name), seconds(other.granted)))
		}
		if anybody == nil || t.granted > anybody.granted {
			anybody = t
		}
		if t.mode == dlock.Exclusive && (writer == nil || t.granted > writer.granted) {
			writer = t
		}
	}
	return faults
}

// staleTokens finds tokens that a resource would refuse because it has seen a writer's that was not smaller.
func staleTokens(held []*attempt) (faults []string) {
	var highest *attempt
	for _, t := range byGrant(held) {
		if highest != nil && t.token <= highest.token {
			faults = append(faults, fmt.Sprintf("%s got %d, after %s had got %d", t.label(), t.token, highest.label(), highest.token))
		}
		if t.mode == dlock.Exclusive && (highest == nil || t.token > highest.token) {
			highest = t
		}
	}
	return faults
}

func counterFaults(held []*attempt, count total) (faults []string) {
	for _, t := range byGrant(held) {
		if t.anomaly != "" {
			faults = append(faults, t.anomaly)
		}
	}
	if made := sum(held); !count.shared && count.value != made {
		faults = append(faults, fmt.Sprintf("it is %d in the end, after %d bumps", count.value, made))
	}
	return faults
}

func counterFine(held []*attempt, count total) string {
	made := sum(held)
	if count.shared {
		return fmt.Sprintf("none of %d bumps got lost, %d of them ours", count.increments, made)
	}
	if writers := countMode(held, dlock.Exclusive); made == int64(writers*incrementsPerHold) {
		return fmt.Sprintf("%d = %d bumps x %d exclusive holds, none got lost", count.value, incrementsPerHold, writers)
	}
	return fmt.Sprintf("%d, none got lost; a hold that was cut short made fewer than %d", count.value, incrementsPerHold)
}

func sum(held []*attempt) (made int64) {
	for _, t := range held {
		made += int64(t.increments)
	}
	return made
}

// tally returns how many there are of that mode.
func countMode(held []*attempt, m dlock.Mode) (n int) {
	for _, t := range held {
		if t.mode == m {
			n++
		}
	}
	return n
}

func byGrant(held []*attempt) []*attempt {
	return slices.SortedStableFunc(slices.Values(held), func(a, b *attempt) int {
		return cmp.Or(cmp.Compare(a.granted, b.granted), cmp.Compare(a.token, b.token))
	})
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3fs", d.Seconds()) }
