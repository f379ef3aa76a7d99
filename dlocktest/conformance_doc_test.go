package dlocktest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// brokenDrivers lists, by rule, the sabotages and the cases that catch them.
const brokenDrivers = "testdata/broken-drivers.txt"

// tries is how often a listed case may run, because some cases depend on
// timing.
const tries = 5

// To search for a broken driver's cases again, delete them from the file
// brokenDrivers.
func TestEverySabotageIsSeen(t *testing.T) {
	listed := read(t, brokenDrivers)
	cases := parseLists(listed)
	if want := lists(cases); listed != want {
		t.Errorf("%s should be:\n%s", brokenDrivers, want)
	}
	// Run many child processes at once: they mostly wait for session timeouts.
	slots, outs := make(chan struct{}, 16), make(map[string]chan string)
	each(func(r rule, s sabotage) {
		out := make(chan string, 1)
		outs[s.does] = out
		go func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			out <- run(t.Context(), s.does, pattern(r, cases[s.does]))
		}()
	})
	each(func(r rule, s sabotage) {
		t.Run(r.id()+"/"+strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(s.does), func(t *testing.T) {
			wantCaught(t, r, s, cases[s.does], <-outs[s.does])
		})
	})
}

func each(f func(r rule, s sabotage)) {
	for _, r := range rules {
		for _, s := range sabotages[r.id()] {
			f(r, s)
		}
	}
}

func pattern(r rule, cases []string) string {
	if len(cases) == 0 {
		return "^TestSabotaged$"
	}
	return "^TestSabotaged$/^" + r.id() + "$/^(" + strings.Join(cases, "|") + ")$"
}

func wantCaught(t *testing.T, r rule, s sabotage, cases []string, out string) {
	t.Helper()
	failed := failures(out)
	for _, name := range cases {
		for try := 1; try < tries && !failed[r.id()+"/"+name]; try++ {
			out = run(t.Context(), s.does, pattern(r, []string{name}))
			maps.Copy(failed, failures(out))
		}
		if !failed[r.id()+"/"+name] {
			t.Errorf("the case %s passed a driver that %s, %d times:\n%s", name, s.does, tries, out)
		}
	}
	if len(cases) == 0 {
		t.Errorf("the file names no case of %v that catches a driver that %s (%s); these failed: %v", r, s.does, s.where, slices.Sorted(maps.Keys(failed)))
	}
	for _, text := range []string{r.String() + " broken: ", "why it matters: "} {
		if !strings.Contains(out, text) {
			t.Errorf("the kit's output on a driver that %s does not contain %q:\n%s", s.does, text, out)
		}
	}
	if strings.Contains(out, "panic: ") || strings.Contains(out, "DATA RACE") {
		t.Errorf("the kit's output on a driver that %s:\n%s", s.does, out)
	}
}

var failLine = regexp.MustCompile(`(?m)^ +--- FAIL: TestSabotaged/(\S+/\S+) `)

func failures(out string) map[string]bool {
	failed := make(map[string]bool)
	for _, m := range failLine.FindAllStringSubmatch(out, -1) {
		failed[m[1]] = true
	}
	return failed
}

func lists(cases map[string][]string) string {
	var b strings.Builder
	last := ""
	each(func(r rule, s sabotage) {
		if r.String() != last {
			last = r.String()
			fmt.Fprintf(&b, "\n%s\n\n", last)
		}
		fmt.Fprintf(&b, "%s:\n", s.does)
		for _, name := range cases[s.does] {
			fmt.Fprintf(&b, "\t%s\n", name)
		}
	})
	return strings.TrimPrefix(b.String(), "\n")
}

var item = regexp.MustCompile(`(?m)^(.+):\n((?:\t.+\n)*)`)

func parseLists(listed string) map[string][]string {
	cases := make(map[string][]string)
	for _, m := range item.FindAllStringSubmatch(listed, -1) {
		cases[m[1]] = strings.Fields(m[2])
	}
	return cases
}

func TestThePageNamesSabotages(t *testing.T) {
	rows := regexp.MustCompile(`(?m)^\| ([a-z].*) \| (.*) \|$`).FindAllStringSubmatch(read(t, "../docs/contribute/conformance.md"), -1)
	if len(rows) != len(rules) {
		t.Fatalf("the table has %d rows, and the kit %d rules", len(rows), len(rules))
	}
	for i, r := range rules {
		if rows[i][1] != r.String() {
			t.Errorf("row %d is %q, expected %q", i+1, rows[i][1], r)
		}
		for does := range strings.SplitSeq(rows[i][2], "; ") {
			if !slices.ContainsFunc(sabotages[r.id()], func(s sabotage) bool { return s.does == does }) {
				t.Errorf("%v: no sabotage %q", r, does)
			}
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// run runs conformance tests against a broken driver, in a child process.
func run(ctx context.Context, name, cases string) string {
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run="+cases, "-test.v", "-test.timeout=9m")
	cmd.Env = append(os.Environ(), sabotageEnv+"="+name)
	out, err := cmd.CombinedOutput()
	return fmt.Sprintf("%s%v", out, err)
}
