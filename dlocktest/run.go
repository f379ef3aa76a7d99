package dlocktest

import (
	"cmp"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// Run checks every rule of package driver in subtests of t with names such as
// "rule06/watch-of-a-node-deleted-before-arming". At the end it logs which
// rules were checked, which are broken, which lack a hook to check them, and
// which do not apply to the driver.
func Run(t *testing.T, config Config) {
	if config.New == nil {
		t.Fatal("dlocktest: Config.New is nil")
	}
	have := config.hooks() | probe(t, config)
	tryOperator(t, config)
	s := newSummary(have)
	parallel := config.Parallel > 1
	// Only one case that keeps the store busy runs at a time, because more
	// would delay heartbeats until sessions with short timeouts end.
	busy, waiting := make(chan struct{}, 1), make(chan struct{}, max(config.Parallel-1, 1))
	runRules := func(parallel, alone bool) {
		runEach(parallel, rules, func(r rule) {
			if r.alone() != alone {
				return
			}
			t.Run(r.id(), func(t *testing.T) {
				runEach(parallel, r.cases, func(k testCase) {
					slots := busy
					if k.waits() {
						slots = waiting
					}
					slots <- struct{}{}
					defer func() { <-slots }()
					t.Run(k.name, func(t *testing.T) { s.run(t, config, r, k) })
				})
			})
		})
	}
	runRules(parallel, false)
	runRules(false, true)
	t.Log(s.String())
}

func runEach[T any](parallel bool, items []T, f func(T)) {
	var wg sync.WaitGroup
	for _, item := range items {
		if parallel {
			wg.Go(func() { f(item) })
		} else {
			f(item)
		}
	}
	wg.Wait()
}

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
	{0, "remove", removeCases},
	{0, "value", valueCases},
	{0, "loss", lossCases},
	{0, "describe", describeCases},
	{0, "check", checkCases},
	{0, "locks", lockCases},
}

type summary struct {
	have need

	mu sync.Mutex
	of map[string]*outcomes // guarded by mu
}

type outcomes struct {
	verdicts map[verdict]int
	missing  need // what skipped cases needed
}

func newSummary(have need) *summary {
	s := &summary{have: have, of: make(map[string]*outcomes)}
	for _, r := range rules {
		s.of[r.id()] = &outcomes{verdicts: make(map[verdict]int)}
	}
	return s
}

func (s *summary) run(t *testing.T, config Config, r rule, k testCase) {
	t.Helper()
	if !s.canRun(t, r, k, config.Complete) {
		return
	}
	v := runCase(t, config, s.have, r, k)
	s.update(r, func(o *outcomes) { o.verdicts[v]++ })
	if v == unproven {
		t.SkipNow()
	}
}

func (s *summary) update(r rule, f func(o *outcomes)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.of[r.id()])
}

// canRun reports whether Config has the hooks, and the driver the abilities,
// that a case needs. If not, it skips or fails t.
func (s *summary) canRun(t *testing.T, r rule, k testCase, complete bool) bool {
	t.Helper()
	missing := k.needs &^ s.have
	missing &= -missing // the first of them
	s.update(r, func(o *outcomes) { o.missing |= missing })
	switch {
	case missing == 0:
		return true
	case missing&needAbility != 0:
		t.Skipf("%s not applicable: no %s", r.label(), missing.names()[0])
	case !complete || missing == needLossy:
		t.Skipf("%s not checked: Config.%s is nil", r.label(), missing.names()[0])
	}
	t.Errorf("%s not checked: Config.%s is nil, and Config.Complete demands everything", r.label(), missing.names()[0])
	return false
}

// String returns one line per rule that says how much of it was checked.
func (s *summary) String() string {
	var b strings.Builder
	b.WriteString("dlocktest: summary, of sessions with the abilities ")
	b.WriteString(cmp.Or(strings.Join((s.have&needAbility).names(), ", "), "(none)"))
	for _, r := range rules {
		fmt.Fprintf(&b, "\n  %-33s %s", r, s.of[r.id()].describe(len(r.cases)))
	}
	return b.String()
}

func (o *outcomes) describe(all int) string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	bad := o.verdicts[broken]
	checked := o.verdicts[passed] + bad
	switch {
	case checked == 0:
	case bad > 0 && checked == all:
		add("BROKEN in %d of %d cases", bad, all)
	case bad > 0:
		add("BROKEN in %d of the %d cases that were checked, of %d", bad, checked, all)
	case checked == all:
		add("checked (%d cases)", all)
	default:
		add("checked in part (%d of %d cases)", checked, all)
	}
	if n := o.verdicts[hookFailed]; n > 0 {
		add("not checked, as a hook of Config failed: %d cases", n)
	}
	if n := o.verdicts[unproven]; n > 0 {
		add("not checked, as the fault that was played had no effect: %d cases", n)
	}
	if hooks := (o.missing &^ needAbility).names(); hooks != nil {
		add("not checked: Config.%s is nil", strings.Join(hooks, " is nil, Config."))
	}
	if abilities := (o.missing & needAbility).names(); abilities != nil {
		add("not applicable: no %s", strings.Join(abilities, ", no "))
	}
	return cmp.Or(strings.Join(parts, "; "), "not run")
}
