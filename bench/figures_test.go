package main

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/bench/internal/stats"
)

func TestNumbersHaveThreeSignificantDigits(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0.00", 1.005: "1.00", 9.994: "9.99", 9.996: "10.0", 42.42: "42.4", 99.96: "100", 999.5: "1,000", 1234567: "1,234,567", -1500: "-1,500",
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

func TestParagraphsAreWrappedAt100Columns(t *testing.T) {
	line := strings.Repeat("word ", 19) + "words" // 100 columns
	require.Equal(t, line, wrap(line))
	require.Equal(t, line+"\n"+line, wrap(line+" "+line))
	require.Equal(t, strings.Repeat("word ", 18)+"word\nlonger", wrap(strings.Repeat("word ", 19)+"longer"))
	require.Empty(t, wrap(""))
}
