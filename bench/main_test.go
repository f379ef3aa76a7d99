package main

import (
	"log"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMain lets the test binary act as a child process of bench.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "-child" {
		if err := command(os.Args[1:]); err != nil {
			log.Fatal(err)
		}
		return
	}
	os.Exit(m.Run())
}

func chosen(t *testing.T, o options) (all [][]string) {
	t.Helper()
	runs, err := o.runs()
	require.NoError(t, err)
	for _, r := range runs {
		list := append([]string{r.setup.name}, mapped(r.workloads, workload.id)...)
		all = append(all, append(list, mapped(r.competitors, competitor.id)...))
	}
	return all
}

func TestServersWorkloadsAndCompetitorsAreChosenTogether(t *testing.T) {
	require.Equal(t, [][]string{
		{"one", "free", "try-held", "dlock", "kazoo"},
		{"three", "free", "dlock"},
		{"delayed", "free", "dlock"},
	}, chosen(t, options{workloads: "try-held, free", competitors: "kazoo,dlock"}))
	require.Equal(t, [][]string{{"waited", "waited", "dlock", "zk.Lock"}},
		chosen(t, options{servers: "three,waited", workloads: "waited", competitors: "dlock,zk.Lock"}))

	runs, err := options{}.runs()
	require.NoError(t, err)
	require.Len(t, runs, len(setups()))
	_, err = options{servers: "three", workloads: "try-held"}.runs()
	require.ErrorContains(t, err, "the chosen servers have none of the chosen workloads")
	_, err = options{servers: "two"}.runs()
	require.EqualError(t, err, "bench: unknown: two; known are one, three, delayed, waited")
}

func TestFlagsThatDoNotGoWithAnOlderRevision(t *testing.T) {
	require.EqualError(t, command([]string{"-against", "v1"}),
		"bench: -against takes at least 6 rounds for a 95% interval: add -rounds 30")
	require.EqualError(t, command([]string{"-against", "v1", "-rounds", "6", "-competitors", "zk.Lock"}),
		"bench: -against has nothing to compare: add dlock to -competitors")
}
