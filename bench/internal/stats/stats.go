// Package stats is the arithmetic of the benchmark: percentiles, medians over rounds, ratios
// within rounds.
package stats

import (
	"math"
	"slices"
)

// Spread sums up the rounds of one figure.
type Spread struct {
	Median, Min, Max float64
	N                int
}

// Of returns the spread of the values; without values it is the zero Spread.
func Of(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	return Spread{Median: Median(values), Min: slices.Min(values), Max: slices.Max(values), N: len(values)}
}

// Median returns the value in the middle, or the mean of the two in the middle; NaN without values.
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

// Percentile returns the smallest value that at least p percent of the values do not exceed (the
// nearest rank); NaN without values.
func Percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Ratios divides round by round: what the machine did in a round happened to both. A round that
// is missing (NaN) on either side, or has a zero below the line, is left out.
func Ratios(above, below []float64) (ratios []float64) {
	for i := range min(len(above), len(below)) {
		if r := above[i] / below[i]; !math.IsNaN(r) && !math.IsInf(r, 0) {
			ratios = append(ratios, r)
		}
	}
	return ratios
}

// Interval is a range that holds an unknown value with a confidence of at least
// 95%. It is not Known if there are too few values.
type Interval struct {
	Low, High float64
	Known     bool
}

// LeastForInterval is how many values MedianInterval needs.
const LeastForInterval = 6

// MedianInterval returns an interval for the median of what the values are drawn
// from, whatever their distribution: from the k-th smallest value to the k-th
// largest one (the interval of the sign test).
func MedianInterval(values []float64) Interval {
	// Fewer than k of n values are below the median with the probability of
	// fewer than k heads in n tosses of a coin; the same holds above the median.
	n, k := len(values), 0
	term := math.Pow(0.5, float64(n)) // of exactly k heads
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

// Shares returns the smallest and the largest of the counts, in relation to what each would have
// if all were equal: 1 and 1 if they are. Without any count it returns zeros.
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

// Sum adds up counts.
func Sum(counts []int64) (sum int64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}
