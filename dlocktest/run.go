package dlocktest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Run checks every rule of the contract as subtests of t, named like
// "rule06/watch-of-a-node-deleted-before-arming". It logs at its end which
// rules were checked, which are broken, which were not checked for want of a
// hook in the Config, and which do not apply to the driver.
func Run(t *testing.T, config Config) {
	if config.New == nil {
		t.Fatal("dlocktest: Config.New is nil")
	}
	have := config.hooks() | probe(t, config)
	s := newSummary(have)
	for _, r := range rules {
		t.Run(r.id(), func(t *testing.T) {
			for _, k := range r.cases {
				t.Run(k.name, func(t *testing.T) {
					if s.admit(t, r, k, have, config.Complete) {
						v := runCase(t, config, have, r, k)
						s.note(r, v)
						if v == unproven {
							t.SkipNow() // runCase has said why
						}
					}
				})
			}
		})
	}
	t.Log(s.String())
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
	{5, "ahead", aheadCases},
	{6, "watch", watchCases},
	{7, "delete", deleteCases},
	{8, "session end", endCases},
	{9, "close", closeCases},
	{10, "methods", methodCases},
	{11, "nothing outlives close", leakCases},
	{12, "replace", replaceCases},
	{13, "released", releasedCases},
	{0, "read", readCases},
	{0, "walk", walkCases},
	{0, "locks", lockCases},
}

// verdict is what became of a case.
type verdict int

const (
	passed verdict = iota
	broken
	hookFailed // the case could not be checked
	unproven   // the fault that was played had no effect that could be judged
)

// summary remembers what became of every rule.
type summary struct {
	have    need
	checked map[string]int
	broken  map[string]int
	failed  map[string]int // cases with a hook that failed
	idle    map[string]int // cases that proved nothing
	missing map[string][]string
	absent  map[string][]string
}

func newSummary(have need) *summary {
	return &summary{
		have:    have,
		checked: make(map[string]int),
		broken:  make(map[string]int),
		failed:  make(map[string]int),
		idle:    make(map[string]int),
		missing: make(map[string][]string),
		absent:  make(map[string][]string),
	}
}

// admit reports whether a case can run, and skips or fails it visibly if not.
func (s *summary) admit(t *testing.T, r rule, k testCase, have need, complete bool) bool {
	t.Helper()
	for _, n := range needs {
		if k.needs&n.need == 0 || have&n.need != 0 {
			continue
		}
		if n.ability {
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
	return true
}

// note counts what became of a case.
func (s *summary) note(r rule, v verdict) {
	switch v {
	case hookFailed:
		s.failed[r.id()]++
	case unproven:
		s.idle[r.id()]++
	case broken:
		s.broken[r.id()]++
		fallthrough
	case passed:
		s.checked[r.id()]++
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

// String says of every rule how much of it was checked.
func (s *summary) String() string {
	var b strings.Builder
	b.WriteString("dlocktest: summary, of sessions with the abilities ")
	b.WriteString(s.abilities())
	for _, r := range rules {
		fmt.Fprintf(&b, "\n  %-33s %s", r, s.line(r))
	}
	return b.String()
}

func (s *summary) abilities() string {
	var names []string
	for _, n := range needs {
		if n.ability && s.have&n.need != 0 {
			names = append(names, n.name)
		}
	}
	if names == nil {
		return "(none)"
	}
	return strings.Join(names, ", ")
}

func (s *summary) line(r rule) string {
	var parts []string
	broken, checked, all := s.broken[r.id()], s.checked[r.id()], len(r.cases)
	switch {
	case checked == 0:
	case broken > 0 && checked == all:
		parts = append(parts, fmt.Sprintf("BROKEN in %d of %d cases", broken, all))
	case broken > 0:
		parts = append(parts, fmt.Sprintf("BROKEN in %d of the %d cases that were checked, of %d", broken, checked, all))
	case checked == all:
		parts = append(parts, fmt.Sprintf("checked (%d cases)", all))
	default:
		parts = append(parts, fmt.Sprintf("checked in part (%d of %d cases)", checked, all))
	}
	if n := s.failed[r.id()]; n > 0 {
		parts = append(parts, fmt.Sprintf("not checked, as a hook of Config failed: %d cases", n))
	}
	if n := s.idle[r.id()]; n > 0 {
		parts = append(parts, fmt.Sprintf("not checked, as the fault that was played had no effect: %d cases", n))
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
