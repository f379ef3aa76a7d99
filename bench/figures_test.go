package main

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/bench/internal/stats"
)

func TestNumbersHaveThreeSignificantDigits(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0.00", 1.005: "1.00", 9.994: "9.99", 9.996: "10.0", 42.42: "42.4", 99.96: "100", 999.5: "1,000", 1234567: "1,234,567", -150: "-150", -1500: "-1,500", 123456: "123,456",
	} {
		require.Equal(t, want, number(v))
	}
	require.Equal(t, "-", number(math.NaN()))
}

func TestSpreadWithoutRoundsIsADash(t *testing.T) {
	require.Equal(t, "-", spread(stats.Spread{}))
	require.Equal(t, "2.00 (1.00 to 3.00)", spread(stats.Of([]float64{1, 2, 3})))
}

func TestTablesAreMarkdown(t *testing.T) {
	require.Equal(t, "| a | b |\n|---|---:|\n| x | 1 |\n", table([]string{"a", "b"}, [][]string{{"x", "1"}}))
}

func TestFiguresAreSavedWithFourSignificantDigits(t *testing.T) {
	require.Equal(t, 1235.0, significant(1234.56))
	require.Equal(t, 0.001235, significant(0.00123456))
	require.Zero(t, significant(0))
}
