// Package stats is the arithmetic of the benchmark: percentiles, medians over rounds,
// and ratios within rounds.
package stats

import (
	"math"
	"slices"
)

// Spread summarizes the values of one figure.
type Spread struct {
	Median, Min, Max float64
	N                int
}

// Of returns the spread of the values, or the zero Spread if there are none.
func Of(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	return Spread{Median: Median(values), Min: slices.Min(values), Max: slices.Max(values), N: len(values)}
}

// Median returns the middle value, or the mean of the two middle values. It returns
// NaN if there are no values.
func Median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}

// Percentile returns the smallest value that at least p percent of the values do not
// exceed (the nearest rank). It returns NaN if there are no values.
func Percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Ratios divides above by below, round by round. Other work on the machine
// during a round affects both values of that round, and so changes their ratio
// less. Ratios leaves out a round if either value is missing (NaN), or if the
// value of below is zero.
func Ratios(above, below []float64) (ratios []float64) {
	for i := range min(len(above), len(below)) {
		if r := above[i] / below[i]; !math.IsNaN(r) && !math.IsInf(r, 0) {
			ratios = append(ratios, r)
		}
	}
	return ratios
}

// Interval contains an unknown value with a confidence of at least 95%. Known reports
// whether there are enough values for an interval.
type Interval struct {
	Low, High float64
	Known     bool
}

// MinForInterval is the number of values that MedianInterval needs.
const MinForInterval = 6

// MedianInterval returns an interval for the median of the distribution that
// the values are drawn from. The interval goes from the k-th smallest value to
// the k-th largest. As in the sign test, k is as large as a confidence of at
// least 95% allows. The confidence does not depend on the distribution.
func MedianInterval(values []float64) Interval {
	// Each value lies below the median with a probability of one half, as a coin
	// shows heads. So fewer than k of n values are below the median with the same
	// probability as n tosses show fewer than k heads. The same holds above the
	// median.
	n, k := len(values), 0
	term := math.Pow(0.5, float64(n)) // the probability of exactly k heads
	for outside := 2 * term; k < n && outside <= 0.05; outside += 2 * term {
		k++
		term *= float64(n-k+1) / float64(k)
	}
	if k == 0 {
		return Interval{}
	}
	sorted := slices.Sorted(slices.Values(values))
	return Interval{Low: sorted[k-1], High: sorted[n-k], Known: true}
}

// Shares returns the smallest and the largest count in relation to an equal share. Both
// are 1 if all counts are equal, and 0 if all counts are zero.
func Shares(counts []int64) (smallest, largest float64) {
	var sum int64
	for _, n := range counts {
		sum += n
	}
	if sum == 0 {
		return 0, 0
	}
	equal := float64(sum) / float64(len(counts))
	return float64(slices.Min(counts)) / equal, float64(slices.Max(counts)) / equal
}

// Sum returns the sum of the counts.
func Sum(counts []int64) (sum int64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}
