package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

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
	}, chosen(t, options{workloads: "try-held,free", competitors: "kazoo,dlock"}))
	require.Equal(t, [][]string{{"three", "free", "dlock"}},
		chosen(t, options{servers: "three", workloads: "try-held,free", competitors: "dlock"}))
	require.Equal(t, [][]string{{"one", "try-held", "dlock"}}, chosen(t, options{workloads: "try-held", competitors: "dlock"}))

	_, err := options{servers: "three", workloads: "try-held"}.runs()
	require.ErrorContains(t, err, "the chosen servers have none of the chosen workloads")
	_, err = options{servers: "two"}.runs()
	require.EqualError(t, err, "bench: unknown: two; known are one, three, delayed, waited")
}

func TestEverySetupIsMeasuredByDefault(t *testing.T) {
	runs, err := options{}.runs()
	require.NoError(t, err)
	require.Equal(t, []string{"one", "three", "delayed", "waited"}, mapped(runs, func(r *run) string { return r.setup.name }))
	require.Len(t, runs[0].workloads, len(workloads())-len(runs[3].workloads))
	require.Len(t, runs[0].competitors, len(competitors()))
}

func TestSetupsNameKnownWorkloadsAndCompetitors(t *testing.T) {
	for _, s := range setups() {
		if s.workloads != nil {
			require.Len(t, filter(workloads(), s.hasWorkload), len(s.workloads))
		}
		if s.competitors != nil {
			require.Len(t, filter(competitors(), s.hasCompetitor), len(s.competitors))
		}
		require.Equal(t, s, setupNamed(s.name))
	}
}

func TestOlderRevisionTakesPartOnEverySetup(t *testing.T) {
	runs, err := options{against: "v1", competitors: "dlock"}.runs()
	require.NoError(t, err)
	for _, r := range runs {
		r.addOlder(revision{label: "v1"})
		require.Equal(t, []string{"dlock", "dlock@older"}, mapped(r.competitors, competitor.id))
		found := newResults(r.setup.name, 1)
		found.Against = r.older
		found.Samples["free"] = map[string][]sample{"dlock": rounds("p50", 1), "dlock@older": rounds("p50", 1)}
		require.Contains(t, newReport(found).text(), "against v1, on "+r.setup.phrase)
	}
}

func TestRoundTripMayDifferByATenth(t *testing.T) {
	require.NoError(t, checkRoundTrip(2200*time.Microsecond, time.Millisecond))
	require.NoError(t, checkRoundTrip(1800*time.Microsecond, time.Millisecond))
	require.ErrorContains(t, checkRoundTrip(2201*time.Microsecond, time.Millisecond), "takes 2.201ms, and should take 2ms")
	require.Error(t, checkRoundTrip(1799*time.Microsecond, time.Millisecond))
}

func TestCountersOfMembersAreAddedUp(t *testing.T) {
	a := counters{received: 1, sent: 2, bytesIn: 3, bytesOut: 4, contenders: 5, watchers: 6}
	b := counters{received: 10, sent: 20, bytesIn: 30, bytesOut: 40, contenders: 4, watchers: 60}
	sum := counters{received: 11, sent: 22, bytesIn: 33, bytesOut: 44, contenders: 4, watchers: 66}
	require.Equal(t, sum, sumOfMembers([]counters{a, b}), "every member counts all contenders")
}

func TestMembersOfAnEnsembleShareOneConfiguration(t *testing.T) {
	config, err := ensembleConfig(3)
	require.NoError(t, err)
	require.Len(t, config, 3)
	seen := map[string]bool{}
	for i, id := range []string{"1", "2", "3"} {
		require.Equal(t, id, config[i]["myid"])
		line := config[0]["server."+id]
		require.Regexp(t, `^127\.0\.0\.1:[0-9]+:[0-9]+$`, line)
		require.False(t, seen[line])
		seen[line] = true
		require.Equal(t, line, config[i]["server."+id])
	}
}
