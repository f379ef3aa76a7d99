package stats

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMedianIsTheMiddleOrTheMeanOfTheTwoInTheMiddle(t *testing.T) {
	require.Equal(t, 3.0, Median([]float64{9, 1, 3}))
	require.Equal(t, 2.0, Median([]float64{1, 9, 3, 1}))
	require.True(t, math.IsNaN(Median(nil)))
}

func TestMedianLeavesItsArgumentAsItIs(t *testing.T) {
	values := []float64{3, 1, 2}
	Median(values)
	Percentile(values, 50)
	require.Equal(t, []float64{3, 1, 2}, values)
}

func TestPercentileIsTheNearestRank(t *testing.T) {
	values := make([]float64, 100)
	for i := range values {
		values[i] = float64(100 - i)
	}
	require.Equal(t, 50.0, Percentile(values, 50))
	require.Equal(t, 99.0, Percentile(values, 99))
	require.Equal(t, 100.0, Percentile(values, 100))
	require.Equal(t, 1.0, Percentile(values, 0))
	require.Equal(t, 7.0, Percentile([]float64{7}, 99))
	require.Equal(t, 2.0, Percentile([]float64{1, 2, 3}, 50))
	require.True(t, math.IsNaN(Percentile(nil, 50)))
}

func TestSpreadGoesFromTheSmallestToTheLargest(t *testing.T) {
	require.Equal(t, Spread{Median: 2, Min: 1, Max: 5, N: 3}, Of([]float64{5, 1, 2}))
	require.Zero(t, Of(nil))
}

func TestRatiosAreTakenWithinARound(t *testing.T) {
	require.Equal(t, []float64{2, 0.5}, Ratios([]float64{4, 1}, []float64{2, 2}))
}

func TestRatiosLeaveOutRoundsThatLackAValue(t *testing.T) {
	nan := math.NaN()
	require.Equal(t, []float64{3}, Ratios([]float64{1, nan, 6, 1}, []float64{nan, 1, 2, 0}))
	require.Equal(t, []float64{2}, Ratios([]float64{2, 2}, []float64{1}))
}

func TestSharesAreInRelationToAnEqualShare(t *testing.T) {
	least, most := Shares([]int64{1, 2, 3})
	require.Equal(t, 0.5, least)
	require.Equal(t, 1.5, most)
	least, most = Shares([]int64{0, 0})
	require.Zero(t, least)
	require.Zero(t, most)
	least, _ = Shares([]int64{0, 4})
	require.Zero(t, least)
}

func TestTheIntervalOfAMedianIsThatOfTheSignTest(t *testing.T) {
	values := func(n int) (list []float64) {
		for i := range n {
			list = append(list, float64(n-i))
		}
		return list
	}
	for n, low := range map[int]float64{6: 1, 8: 1, 9: 2, 20: 6, 30: 10, 100: 40} { // the ranks are from a table of the sign test
		require.Equal(t, Interval{Low: low, High: float64(n+1) - low, Known: true}, MedianInterval(values(n)), "of %d", n)
	}
	for n := range MinForInterval {
		require.Zero(t, MedianInterval(values(n)), "of %d", n)
	}
}
