package dlocktest

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "run the whole kit against the sabotaged drivers of which docs/contribute/conformance.md names no case, and write there what it saw")

const (
	conformancePage = "../docs/contribute/conformance.md"
	listsBegin      = "<!-- lists: go test ./dlocktest -run TestEverySabotageIsSeen -update -->\n"
	listsEnd        = "<!-- end of lists -->\n"

	soundName = "is sound"
	// shown limits how many cases the page lists for each sabotage (a driver
	// with one deliberate mistake).
	shown = 2
	// rounds is how many times the kit runs to fill a row. Only cases that
	// catch the sabotage in every run are listed.
	rounds = 2
	// tries is how often a listed case may run before the test reports that it
	// misses the sabotage. Some cases depend on timing.
	tries = 5
)

// row is one item of the lists in conformance.md: the kit's cases that catch
// one broken driver.
type row struct {
	caught []string // cases that catch it, in the kit's order
}

func TestEverySabotageIsSeen(t *testing.T) {
	page := readPage(t)
	want := parseLists(t, page)
	if *update {
		observe(t, want)
		writePage(t, replaceLists(t, page, lists(want)))
	} else if got := lists(want); got != listsOf(t, page) {
		t.Errorf("the lists of docs/contribute/conformance.md differ from the following, which -update writes:\n%s", got)
	}
	children := newPool()
	each(func(r rule, s sabotage) { children.start(t, s.does, pattern(r, want[s.does].caught)) })
	each(func(r rule, s sabotage) {
		t.Run(r.id()+"/"+strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(s.does), func(t *testing.T) {
			wantCaught(t, r, s, want[s.does], children.wait(s.does, pattern(r, want[s.does].caught)))
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
	quoted := make([]string, len(cases))
	for i, name := range cases {
		quoted[i] = regexp.QuoteMeta(name)
	}
	return "^TestSabotaged$/^" + r.id() + "$/^(" + strings.Join(quoted, "|") + ")$"
}

func wantCaught(t *testing.T, r rule, s sabotage, want row, out string) {
	t.Helper()
	failed := failures(out)
	for _, name := range want.caught {
		// Some cases depend on timing and do not catch the mistake every time.
		for try := 1; try < tries && !failed[r.id()+"/"+name]; try++ {
			out = run(t.Context(), s.does, pattern(r, []string{name}))
			maps.Copy(failed, failures(out))
		}
		if !failed[r.id()+"/"+name] {
			t.Errorf("the case %s passed a driver that %s, %d times:\n%s", name, s.does, tries, out)
		}
	}
	if len(want.caught) == 0 {
		t.Errorf("no case of %v catches a driver that %s (%s); these failed: %v", r, s.does, s.where, slices.Sorted(maps.Keys(failed)))
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

// observe fills rows that list no cases, by running the whole kit against their
// broken drivers. It also fails t if the correct driver fails. To refresh a
// row, delete its cases from the page.
func observe(t *testing.T, rows map[string]row) {
	children := newPool()
	fresh := func(f func(r rule, s sabotage)) {
		each(func(r rule, s sabotage) {
			if len(rows[s.does].caught) == 0 {
				f(r, s)
			}
		})
	}
	all := func(name string) map[string]bool {
		var always map[string]bool
		for i := range rounds {
			seen := failures(children.wait(name, fmt.Sprintf("^TestSabotaged$|^round%d$", i)))
			if always == nil {
				always = seen
			}
			maps.DeleteFunc(always, func(k string, _ bool) bool { return !seen[k] })
		}
		return always
	}
	start := func(name string) {
		for i := range rounds {
			children.start(t, name, fmt.Sprintf("^TestSabotaged$|^round%d$", i))
		}
	}
	start(soundName)
	fresh(func(_ rule, s sabotage) { start(s.does) })
	if failed := all(soundName); len(failed) > 0 {
		t.Errorf("cases that fail on a sound driver: %v", failed)
	}
	fresh(func(r rule, s sabotage) { rows[s.does] = rowOf(r, all(s.does)) })
}

func rowOf(r rule, failed map[string]bool) (w row) {
	for _, k := range r.cases {
		if failed[r.id()+"/"+k.name] && len(w.caught) < shown {
			w.caught = append(w.caught, k.name)
		}
	}
	return w
}

// lists formats the rows as the page's Markdown lists, one per rule.
func lists(rows map[string]row) string {
	var b strings.Builder
	for _, r := range rules {
		if len(sabotages[r.id()]) == 0 {
			continue
		}
		heading := r.String()
		fmt.Fprintf(&b, "\n### %s\n\n", strings.ToUpper(heading[:1])+heading[1:])
		for _, s := range sabotages[r.id()] {
			fmt.Fprintf(&b, "- %s:\n", s.does)
			for _, name := range rows[s.does].caught {
				fmt.Fprintf(&b, "  `%s`\n", name)
			}
		}
	}
	return b.String() + "\n"
}

var (
	rowLines = regexp.MustCompile("(?m)^- (.+):\n((?:  `.+`\n)*)")
	caseName = regexp.MustCompile("`([^`]+)`")
)

// parseLists returns the rows of the page's lists, by the name of the broken
// driver. It is the inverse of lists.
func parseLists(t *testing.T, page string) map[string]row {
	t.Helper()
	rows := make(map[string]row)
	for _, m := range rowLines.FindAllStringSubmatch(listsOf(t, page), -1) {
		var w row
		for _, c := range caseName.FindAllStringSubmatch(m[2], -1) {
			w.caught = append(w.caught, c[1])
		}
		rows[m[1]] = w
	}
	return rows
}

func readPage(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(conformancePage)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func writePage(t *testing.T, page string) {
	t.Helper()
	if err := os.WriteFile(conformancePage, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
}

func cutLists(t *testing.T, page string) (before, inside, after string) {
	t.Helper()
	before, rest, begun := strings.Cut(page, listsBegin)
	inside, after, ended := strings.Cut(rest, listsEnd)
	if !begun || !ended {
		t.Fatal("docs/contribute/conformance.md has no place for the lists")
	}
	return before, inside, after
}

func listsOf(t *testing.T, page string) string {
	t.Helper()
	_, inside, _ := cutLists(t, page)
	return inside
}

func replaceLists(t *testing.T, page, with string) string {
	t.Helper()
	before, _, after := cutLists(t, page)
	return before + listsBegin + with + listsEnd + after
}

// pool runs the kit on broken drivers in child processes, several at a time,
// because they mostly wait for sessions to time out.
type pool struct {
	slots chan struct{}
	runs  map[[2]string]chan string
}

func newPool() *pool {
	return &pool{slots: make(chan struct{}, 16), runs: make(map[[2]string]chan string)}
}

func (p *pool) start(t *testing.T, name, cases string) {
	out := make(chan string, 1)
	p.runs[[2]string{name, cases}] = out
	go func() {
		p.slots <- struct{}{}
		defer func() { <-p.slots }()
		out <- run(t.Context(), name, cases)
	}()
}

func (p *pool) wait(name, cases string) string { return <-p.runs[[2]string{name, cases}] }

// run runs cases of the kit against a broken driver in a child process and
// returns the output.
func run(ctx context.Context, name, cases string) string {
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run="+cases, "-test.v", "-test.timeout=9m")
	cmd.Env = append(os.Environ(), sabotageEnv+"="+name)
	out, err := cmd.CombinedOutput()
	return fmt.Sprintf("%s%v", out, err)
}
