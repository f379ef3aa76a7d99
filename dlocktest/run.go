package dlocktest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Run checks every rule of the contract as subtests of t, named like
// "rule06/watch-of-a-node-deleted-before-arming", and logs at its end which rules were
// checked, which are broken, which were not checked for want of a function in the Config, and which do not apply to the driver.
func Run(t *testing.T, config Config) {
	if config.New == nil {
		t.Fatal("dlocktest: Config.New is nil")
	}
	have := config.hooks() | probe(t, config)
	if t.Failed() {
		return
	}
	s := newSummary()
	for _, r := range rules {
		t.Run(r.id(), func(t *testing.T) {
			for _, k := range r.cases {
				t.Run(k.name, func(t *testing.T) {
					if s.admit(t, r, k, have, config.Complete) {
						runCase(t, config, r, k)
						s.judge(t, r)
					}
				})
			}
		})
	}
	t.Log(s.String())
}

// probe finds out which optional interfaces the driver's sessions implement. It is
// no subtest, because go test -run would leave it out.
func probe(t *testing.T, config Config) (have need) {
	t.Helper()
	runCase(t, config, rule{number: 10, name: "methods"}, testCase{
		name: "connect",
		why:  "nothing else can be checked without a session",
		run:  func(c *check) { have = abilities(c.session()) },
	})
	return have
}

// A rule is a rule of the contract with its cases.
type rule struct {
	number int // 0: what the contract has no number for
	name   string
	cases  []testCase
}

func (r rule) id() string {
	if r.number == 0 {
		return r.name
	}
	return fmt.Sprintf("rule%02d", r.number)
}

func (r rule) String() string {
	if r.number == 0 {
		return r.name
	}
	return fmt.Sprintf("rule %d (%s)", r.number, r.name)
}

// A testCase checks one sentence of a rule.
type testCase struct {
	name  string
	why   string // what a lock loses on a driver that fails
	needs need
	run   func(c *check)
}

// rules holds every case, in the order in which they run.
var rules = []rule{
	{1, "order", orderCases},
	{2, "names", nameCases},
	{3, "tokens", tokenCases},
	{4, "all or nothing", createCases},
	{5, "alone", aloneCases},
	{6, "watch", watchCases},
	{7, "delete", deleteCases},
	{8, "session end", endCases},
	{9, "close", closeCases},
	{10, "methods", methodCases},
	{11, "nothing outlives close", leakCases},
	{12, "replace", replaceCases},
	{13, "release", releaseCases},
	{0, "read", readCases},
	{0, "walk", walkCases},
	{0, "locks", lockCases},
}

// summary remembers what became of every rule.
type summary struct {
	checked map[string]int
	broken  map[string]int
	missing map[string][]string
	absent  map[string][]string
}

func newSummary() *summary {
	return &summary{checked: map[string]int{}, broken: map[string]int{}, missing: map[string][]string{}, absent: map[string][]string{}}
}

// admit decides whether a case can run, and says visibly why not.
func (s *summary) admit(t *testing.T, r rule, k testCase, have need, complete bool) bool {
	t.Helper()
	for _, n := range needs {
		if k.needs&n.need == 0 || have&n.need != 0 {
			continue
		}
		if n.optional {
			note(s.absent, r.id(), "no "+n.name)
			t.Skipf("%s not applicable: no %s", r.label(), n.name)
		}
		note(s.missing, r.id(), "Config."+n.name+" is nil")
		if complete {
			t.Errorf("%s not checked: Config.%s is nil, and Config.Complete demands everything", r.label(), n.name)
			return false
		}
		t.Skipf("%s not checked: Config.%s is nil", r.label(), n.name)
	}
	s.checked[r.id()]++
	return true
}

// judge remembers whether a case failed.
func (s *summary) judge(t *testing.T, r rule) {
	if t.Failed() {
		s.broken[r.id()]++
	}
}

func (r rule) label() string {
	if r.number == 0 {
		return r.name
	}
	return fmt.Sprintf("rule %d", r.number)
}

func note(m map[string][]string, key, text string) {
	if !slices.Contains(m[key], text) {
		m[key] = append(m[key], text)
	}
}

// String tells of every rule how much of it was checked.
func (s *summary) String() string {
	var b strings.Builder
	b.WriteString("dlocktest: summary")
	for _, r := range rules {
		fmt.Fprintf(&b, "\n  %-33s %s", r, s.line(r))
	}
	return b.String()
}

func (s *summary) line(r rule) string {
	var parts []string
	if n := s.broken[r.id()]; n > 0 {
		parts = append(parts, fmt.Sprintf("BROKEN in %d of %d cases", n, len(r.cases)))
	}
	switch n := s.checked[r.id()]; {
	case n == len(r.cases):
		parts = append(parts, fmt.Sprintf("checked (%d cases)", n))
	case n > 0:
		parts = append(parts, fmt.Sprintf("checked in part (%d of %d cases)", n, len(r.cases)))
	}
	if m := s.missing[r.id()]; m != nil {
		parts = append(parts, "not checked: "+strings.Join(m, ", "))
	}
	if m := s.absent[r.id()]; m != nil {
		parts = append(parts, "not applicable: "+strings.Join(m, ", "))
	}
	if parts == nil {
		return "not run"
	}
	return strings.Join(parts, "; ")
}
