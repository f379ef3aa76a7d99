// Package stats has the arithmetic of the benchmark.
package stats

import (
	"math"
	"slices"
)

// Spread summarizes the values that a figure had in several rounds.
type Spread struct {
	Median, Min, Max float64
	N                int
}

// Of summarizes values. It returns the zero Spread if there are none.
func Of(values []float64) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	return Spread{Median: Median(values), Min: slices.Min(values), Max: slices.Max(values), N: len(values)}
}

// Median returns the middle value, the mean of the two middle values, or NaN if there
// are no values.
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

// Percentile returns the p-th percentile by nearest rank, or NaN if there are no
// values.
func Percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Ratios divides above by below, round by round. Within a round, other load on
// the machine affects both values alike. Rounds in which a value is missing
// (NaN) or below is zero are skipped.
func Ratios(above, below []float64) (ratios []float64) {
	for i := range min(len(above), len(below)) {
		if r := above[i] / below[i]; !math.IsNaN(r) && !math.IsInf(r, 0) {
			ratios = append(ratios, r)
		}
	}
	return ratios
}

// Interval is a confidence interval of at least 95%.
type Interval struct {
	Low, High float64
	Known     bool // false if there were too few values
}

// MinForInterval is the smallest number of values from which MedianInterval can
// compute an interval.
const MinForInterval = 6

// MedianInterval returns a confidence interval for the median, whatever the
// distribution. As in the sign test, it reaches from the k-th smallest to the
// k-th largest value, where k is as large as the confidence allows.
func MedianInterval(values []float64) Interval {
	// Each value is below the median with probability 1/2. The probability
	// that fewer than k of n values are below it is therefore that of fewer
	// than k heads in n coin tosses.
	n, k := len(values), 0
	term := math.Pow(0.5, float64(n)) // P(exactly k heads)
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

// Shares returns the smallest and the largest count as ratios to an equal
// share. It returns zeros if all counts are zero.
func Shares(counts []int64) (smallest, largest float64) {
	sum := Sum(counts)
	if sum == 0 {
		return 0, 0
	}
	equal := float64(sum) / float64(len(counts))
	return float64(slices.Min(counts)) / equal, float64(slices.Max(counts)) / equal
}

func Sum(counts []int64) (sum int64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}
