package demo

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock"
)

// total is the last reading of the counter.
type total struct {
	reading
	shared bool // other processes may use the counter, too, and may have incremented it
}

// readTotal returns the total after all workers have stopped. If the counter is
// shared, other processes may still change it, so its total is the last reading of
// a worker that held the lock.
func readTotal(c counter, shared bool, attempts []*attempt) (total, error) {
	if !shared {
		value, err := c.load()
		if err != nil {
			return total{}, err
		}
		increments, err := c.increments()
		return total{reading: reading{value, increments}}, err
	}
	last := new(attempt)
	for _, t := range attempts {
		if t.held && t.ended >= last.ended {
			last = t
		}
	}
	return total{reading: last.last, shared: true}, nil
}

// judge returns the verdict: which rules the attempts and the counter violate.
func judge(attempts []*attempt, count total) *verdict {
	held := slices.DeleteFunc(slices.Clone(attempts), func(t *attempt) bool { return !t.held })
	v := &verdict{attempts: attempts, total: count}
	v.add("alone", "no other worker held the lock together with a writer", overlaps(held))
	v.add("counter", counterFine(held, count), counterFaults(held, count))
	v.add("order", "first come, first served, if two could not share the lock", queueJumps(held))
	v.add("tokens", "each above those of all earlier writers", staleTokens(held))
	return v
}

// overlaps returns a fault for each hold that began before the end of another
// hold, if one of the two was exclusive.
func overlaps(held []*attempt) (faults []string) {
	// Among the holds that began before t, the variable last has the hold that
	// ends last, and the variable writer has the exclusive hold that ends last.
	var writer, last *attempt
	for _, t := range byGrant(held) {
		other := writer
		if t.mode == dlock.Exclusive {
			other = last
		}
		if other != nil && t.granted < other.ended {
			faults = append(faults, fmt.Sprintf("%s held it %s to %s, together with %s, %s to %s",
				t.label(), seconds(t.granted), seconds(t.ended), other.label(), seconds(other.granted), seconds(other.ended)))
		}
		if last == nil || t.ended > last.ended {
			last = t
		}
		if t.mode == dlock.Exclusive && (writer == nil || t.ended > writer.ended) {
			writer = t
		}
	}
	return faults
}

// queueJumps returns a fault for each hold that began before the hold of a
// contender that was ahead in the queue, if one of the two was exclusive. It
// compares nodes of one epoch of the queue only, because sequences of different
// epochs cannot be compared.
func queueJumps(held []*attempt) (faults []string) {
	queue := slices.SortedStableFunc(slices.Values(held), func(a, b *attempt) int {
		return cmp.Or(cmp.Compare(a.place.Epoch, b.place.Epoch), cmp.Compare(a.place.Seq, b.place.Seq))
	})
	// Among the contenders ahead of t in the queue, the variable last has the
	// one with the latest grant. The variable writer has the writer with the
	// latest grant.
	var writer, last *attempt
	for _, t := range queue {
		if last != nil && last.place.Epoch != t.place.Epoch {
			writer, last = nil, nil
		}
		other := writer
		if t.mode == dlock.Exclusive {
			other = last
		}
		if other != nil && t.granted < other.granted {
			faults = append(faults, fmt.Sprintf("%s held it from %s although %s, from %s, was ahead",
				printable(t.place.Name), seconds(t.granted), printable(other.place.Name), seconds(other.granted)))
		}
		if last == nil || t.granted > last.granted {
			last = t
		}
		if t.mode == dlock.Exclusive && (writer == nil || t.granted > writer.granted) {
			writer = t
		}
	}
	return faults
}

// staleTokens returns a fault for each token that is not greater than the token
// of an earlier writer. If the token is smaller, a resource would refuse it. If
// it is equal, a resource could not tell its holder from that writer.
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

// counterFaults returns the anomalies that the workers saw, and a fault if the
// total of a counter that is not shared is wrong.
func counterFaults(held []*attempt, count total) (faults []string) {
	for _, t := range byGrant(held) {
		if t.anomaly != "" {
			faults = append(faults, t.anomaly)
		}
	}
	if made := sum(held); !count.shared && count.value != made {
		faults = append(faults, fmt.Sprintf("it is %d in the end, after %d increments", count.value, made))
	}
	return faults
}

// counterFine returns what the verdict says of a counter without faults.
func counterFine(held []*attempt, count total) string {
	made := sum(held)
	if count.shared {
		return fmt.Sprintf("none of %d increments was lost, %d of them were made here", count.increments, made)
	}
	if writers := countMode(held, dlock.Exclusive); made == int64(writers*incrementsPerHold) {
		return fmt.Sprintf("%d = %d increments x %d exclusive holds, none was lost", count.value, incrementsPerHold, writers)
	}
	return fmt.Sprintf("%d, none was lost; a hold that was cut short made fewer than %d", count.value, incrementsPerHold)
}

// sum returns how many increments the holds made.
func sum(held []*attempt) (made int64) {
	for _, t := range held {
		made += int64(t.increments)
	}
	return made
}

// countMode returns how many of the holds have that mode.
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
