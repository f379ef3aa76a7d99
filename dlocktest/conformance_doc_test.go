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

const (
	listsBegin = "<!-- lists: go test ./dlocktest -run TestEverySabotageIsSeen -->\n"
	listsEnd   = "<!-- end of lists -->\n"

	// tries is how often a listed case may run before the test reports that it
	// misses the sabotage. Some cases depend on timing.
	tries = 5
)

// TestEverySabotageIsSeen runs the kit on each broken driver, with the cases
// that docs/contribute/conformance.md names for it. To find cases for an item,
// delete those that it has.
func TestEverySabotageIsSeen(t *testing.T) {
	page, err := os.ReadFile("../docs/contribute/conformance.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, begun := strings.Cut(string(page), listsBegin)
	listed, _, ended := strings.Cut(rest, listsEnd)
	if !begun || !ended {
		t.Fatal("docs/contribute/conformance.md has no place for the lists")
	}
	cases := parseLists(listed)
	if want := lists(cases); listed != want {
		t.Errorf("the lists of docs/contribute/conformance.md differ from the following:\n%s", want)
	}
	// The children mostly wait for sessions to time out.
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
		t.Errorf("the page names no case of %v that catches a driver that %s (%s); these failed: %v", r, s.does, s.where, slices.Sorted(maps.Keys(failed)))
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

// lists formats the cases that catch each broken driver as Markdown lists, one
// per rule.
func lists(cases map[string][]string) string {
	var b strings.Builder
	last := ""
	each(func(r rule, s sabotage) {
		if heading := r.String(); heading != last {
			fmt.Fprintf(&b, "\n### %s\n\n", strings.ToUpper(heading[:1])+heading[1:])
			last = heading
		}
		fmt.Fprintf(&b, "- %s:\n", s.does)
		for _, name := range cases[s.does] {
			fmt.Fprintf(&b, "  `%s`\n", name)
		}
	})
	return b.String() + "\n"
}

var (
	itemLines = regexp.MustCompile("(?m)^- (.+):\n((?:  `.+`\n)*)")
	caseName  = regexp.MustCompile("`([^`]+)`")
)

// parseLists is the inverse of lists.
func parseLists(listed string) map[string][]string {
	cases := make(map[string][]string)
	for _, m := range itemLines.FindAllStringSubmatch(listed, -1) {
		for _, c := range caseName.FindAllStringSubmatch(m[2], -1) {
			cases[m[1]] = append(cases[m[1]], c[1])
		}
	}
	return cases
}

// run runs cases of the kit against a broken driver in a child process and
// returns the output.
func run(ctx context.Context, name, cases string) string {
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run="+cases, "-test.v", "-test.timeout=9m")
	cmd.Env = append(os.Environ(), sabotageEnv+"="+name)
	out, err := cmd.CombinedOutput()
	return fmt.Sprintf("%s%v", out, err)
}
