package dlocktest

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
)

const configEnv = "DLOCKTEST_CONFIG"

type bare struct{ driver.Session }

// configs are unusual configurations, such as those that lack hooks or have
// failing ones. Each runs in a child process, because the kit may fail the test
// that runs it.
var configs = map[string]func() Config{
	"only New": func() Config {
		return Config{New: configOf(func(s base, _ *memdriver.Store) driver.Session { return bare{s} }).New, SessionTimeout: soundTimeout}
	},
	"incomplete": func() Config {
		c := configOf(nil)
		c.Pause = nil
		return c
	},
	"no New": func() Config { return Config{} },
	"no store": func() Config {
		return Config{New: func(*testing.T) driver.Connector { return nil }, Timeout: time.Second}
	},
	"hook fails": func() Config {
		c := configOf(nil)
		c.RemoveNode = func(t *testing.T, _ driver.Connector, _, _ string) { t.Fatal("the operator is ill") }
		return c
	},
	"hook complains": func() Config {
		c := configOf(nil)
		c.RemoveNode = func(t *testing.T, _ driver.Connector, _, _ string) { t.Error("the operator is ill") }
		return c
	},
	"heal fails": func() Config {
		c := configOf(nil)
		cut := c.CutOff
		c.CutOff = func(t *testing.T, s driver.Session) func() {
			heal := cut(t, s)
			return func() {
				heal()
				t.Fatal("the wire is cut for good")
			}
		}
		return c
	},
	"expects too much": func() Config {
		c := configOf(func(s base, _ *memdriver.Store) driver.Session { return plain{s} })
		c.Abilities = []Ability{AbilityInspect, AbilityReleased, "Fly"}
		return c
	},
	"slow": func() Config {
		c := configOf(func(s base, st *memdriver.Store) driver.Session {
			st.Faults().Delay(s, 10*time.Millisecond)
			return s
		})
		c.Timeout = 100 * time.Millisecond
		return c
	},
	"ends with slow replies": func() Config {
		c := configOf(nil)
		c.DelayReplies = func(t *testing.T, s driver.Session, _ time.Duration) { c.Drop(t, s) }
		return c
	},
	"loses no request": func() Config {
		c := configOf(nil)
		c.LoseRequest = func(*testing.T, driver.Session, faults.Op) {}
		return c
	},
	"loses no reply": func() Config {
		c := configOf(nil)
		c.LoseReply = func(*testing.T, driver.Session, faults.Op) {}
		return c
	},
	"loses no reply of a driver that repeats": func() Config {
		c := configOf(nil)
		c.LoseReply, c.Repeats = func(*testing.T, driver.Session, faults.Op) {}, true
		return c
	},
	"holds no request": func() Config {
		c := configOf(nil)
		c.HoldRequest = func(*testing.T, driver.Session, faults.Op) func() { return func() {} }
		return c
	},
	"delays no reply": func() Config {
		c := configOf(nil)
		c.DelayReplies = func(*testing.T, driver.Session, time.Duration) {}
		return c
	},
	"cuts nothing off": func() Config {
		c := configOf(nil)
		c.Timeout = 100 * time.Millisecond
		c.CutOff = func(*testing.T, driver.Session) func() { return func() {} }
		return c
	},
	"drops nothing": func() Config {
		c := configOf(nil)
		c.Timeout = 100 * time.Millisecond
		c.Drop = func(*testing.T, driver.Session) {}
		return c
	},
	"removes no node": func() Config {
		c := configOf(nil)
		c.RemoveNode = func(*testing.T, driver.Connector, string, string) {}
		return c
	},
	"removes no queue": func() Config {
		c := configOf(nil)
		c.RemoveQueue = func(*testing.T, driver.Connector, string) {}
		return c
	},
	"puts no node": func() Config {
		c := configOf(nil)
		c.PutNode = func(*testing.T, driver.Connector, string, string, []byte) {}
		return c
	},
	"cleans up late": func() Config {
		return configOf(func(s base, _ *memdriver.Store) driver.Session { return &cleansUpLate{base: s} })
	},
	"loses a session once": func() Config { return losing(1) },
	"loses every session":  func() Config { return losing(1 << 30) },
	"loses a session once, in a release": func() Config {
		var left atomic.Int32
		left.Store(1)
		return configOf(func(s base, st *memdriver.Store) driver.Session {
			return &perishableInRelease{base: s, store: st, left: &left}
		})
	},
}

// losing returns a configuration in which the first n sessions that create a
// node end, as on a machine that stalls.
func losing(n int32) Config {
	var left atomic.Int32
	left.Store(n)
	return configOf(func(s base, st *memdriver.Store) driver.Session {
		return &perishable{base: s, store: st, left: &left}
	})
}

// cleansUpLate is a sound session. Some of its Creates fail, and it removes
// their nodes after a while.
type cleansUpLate struct {
	base
	creates atomic.Int32
}

func (s *cleansUpLate) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	j, err := s.base.Create(ctx, queue, n)
	if err == nil && s.creates.Add(1)%8 == 0 {
		time.AfterFunc(50*time.Millisecond, func() { _ = s.base.Delete(context.Background(), queue, j.Place, driver.Changed) })
		return driver.Joined{}, errReset
	}
	return j, err
}

type perishable struct {
	base
	store *memdriver.Store
	left  *atomic.Int32
}

func (s *perishable) Create(ctx context.Context, queue string, n driver.NodeSpec) (driver.Joined, error) {
	if queue == "q" && s.left.Add(-1) >= 0 {
		s.store.Faults().Expire(s.base)
	}
	return s.base.Create(ctx, queue, n)
}

// perishableInRelease is a session that ends when it is asked to release a
// node, while left is positive.
type perishableInRelease perishable

func (s *perishableInRelease) Delete(ctx context.Context, queue string, p driver.Place, why driver.Cause) error {
	if queue == "q" && why == driver.Released && s.left.Add(-1) >= 0 {
		s.store.Faults().Expire(s.base)
	}
	return s.base.Delete(ctx, queue, p, why)
}

// TestConfigured runs the kit with one of the configs. Other tests run it in a
// child process. Otherwise it is skipped.
func TestConfigured(t *testing.T) {
	name := os.Getenv(configEnv)
	if name == "" {
		t.Skip("runs for other tests only, in a process of its own")
	}
	Run(t, configs[name]())
}

// runConfigured runs the kit with one of the configs in a child process.
func runConfigured(t *testing.T, name, cases string) (out string, passed bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestConfigured$/"+cases, "-test.v")
	cmd.Env = append(os.Environ(), configEnv+"="+name)
	b, err := cmd.CombinedOutput()
	return string(b), err == nil
}

func wantOutput(t *testing.T, out string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(out, want) {
			t.Errorf("the output does not contain %q:\n%s", want, out)
		}
	}
}

func TestMissingHooksAndAbilitiesAreReported(t *testing.T) {
	out, passed := runConfigured(t, "only New", "")
	if !passed {
		t.Errorf("Run failed on a sound driver without faults:\n%s", out)
	}
	wantOutput(t, out,
		"rule 8 not checked: Config.CutOff is nil",
		"rule 1 (order)                    checked in part (9 of 10 cases); not checked: Config.PutNode is nil",
		"read                              not applicable: no Read")
}

func TestCompleteDemandsEverything(t *testing.T) {
	out, passed := runConfigured(t, "incomplete", "rule08/a(fter-a-pause|-session-lives)")
	if passed {
		t.Errorf("Run passed although Complete is set and Pause is nil:\n%s", out)
	}
	wantOutput(t, out, "rule 8 not checked: Config.Pause is nil, and Config.Complete demands everything",
		"--- PASS: TestConfigured/rule08/a-session-lives-after-connect")
}

func TestConfigWithoutAStoreFails(t *testing.T) {
	for name, want := range map[string]string{
		"no New":   "dlocktest: Config.New is nil",
		"no store": "Config.New returned nil",
	} {
		out, passed := runConfigured(t, name, "")
		if passed {
			t.Errorf("Run passed with %s:\n%s", name, out)
		}
		wantOutput(t, out, want)
	}
}

func TestHookThatFailsFailsItsCaseAloneAndNoRule(t *testing.T) {
	for _, config := range []string{"hook fails", "hook complains"} {
		out, passed := runConfigured(t, config, "rule07/(a-delete-after-an-operator|a-delete-of-either)")
		if passed {
			t.Errorf("Run passed although a hook failed:\n%s", out)
		}
		wantOutput(t, out, "the operator is ill", "Config.RemoveNode failed: this says nothing of the driver, and rule 7 was not checked by this case",
			"--- FAIL: TestConfigured/rule07/a-delete-after-an-operator",
			"--- PASS: TestConfigured/rule07/a-delete-of-either-cause",
			"rule 7 (delete)                   checked in part (1 of 13 cases); not checked, as a hook of Config failed: 1 cases")
		if strings.Contains(out, "broken") || strings.Contains(out, "BROKEN") {
			t.Errorf("a hook that failed counts as a broken rule:\n%s", out)
		}
	}
}

func TestHooksWithoutEffectAreReported(t *testing.T) {
	for config, want := range map[string]struct {
		cases, text string
		blames      bool
	}{
		"loses no request": {"rule04/a-request-lost", "Config.LoseRequest had no effect: each Create", true},
		"loses no reply":   {"rule04/a-reply-lost", "Config.LoseReply had no effect: each Create", true},
		"holds no request": {"rule04/a-create-that-arrives-late", "Config.HoldRequest had no effect: each Create", true},
		"delays no reply":  {"rule08/slow-replies", "Config.DelayReplies had no effect: a session outlived", true},
		"cuts nothing off": {"rule08/a-session-that-ended", "Config.CutOff had no effect: Create made the node", false},
		"removes no node":  {"rule07/a-delete-of-either", "Config.RemoveNode had no effect: it was called for the node web1-W-", true},
		"removes no queue": {"rule07/a-delete-of-either", "Config.RemoveQueue had no effect: it was called for the node web1-W-", true},
		"puts no node":     {"rule07/a-delete-of-either", "Config.PutNode had no effect: it was called for the node legacy-0000000000", true},
		"drops nothing":    {"rule08/an-expired-session", "Config.Drop had no effect: the session lives", false},
	} {
		t.Run(config, func(t *testing.T) {
			out, passed := runConfigured(t, config, want.cases)
			if passed || want.blames && strings.Contains(out, "broken: ") {
				t.Errorf("passed: %v, expected a failure of the hook:\n%s", passed, out)
			}
			wantOutput(t, out, want.text)
		})
	}
	if out, passed := runConfigured(t, "loses no reply of a driver that repeats", "rule04/a-reply-lost"); !passed {
		t.Errorf("Run failed on a driver that repeats a Create whose reply was lost:\n%s", out)
	}
}

func TestHealThatFailsIsNoBrokenRule(t *testing.T) {
	out, passed := runConfigured(t, "heal fails", "rule06/a-deletion-while")
	if passed {
		t.Errorf("Run passed although a hook failed:\n%s", out)
	}
	wantOutput(t, out, "the wire is cut for good", "Config.CutOff failed: this says nothing of the driver")
	if strings.Contains(out, "broken: ") {
		t.Errorf("a hook that failed counts as a broken rule:\n%s", out)
	}
}

func TestMissingAbilityFails(t *testing.T) {
	out, passed := runConfigured(t, "expects too much", "rule07/delete-removes")
	if passed {
		t.Errorf("Run passed although sessions lack an ability that is expected:\n%s", out)
	}
	wantOutput(t, out, "Config.Abilities holds Inspect, and the driver's sessions do not have that ability",
		"Config.Abilities holds Released, and the driver's sessions do not have that ability",
		"Config.Abilities holds \"Fly\", which is no ability",
		"of sessions with the abilities Check")
}

// On a slow store, a case must run fewer rounds instead of failing.
func TestSlowStoreIsNoBrokenRule(t *testing.T) {
	out, passed := runConfigured(t, "slow", "rule06/a-deletion-that-meets")
	if !passed {
		t.Errorf("Run failed on a sound driver that is slow:\n%s", out)
	}
	wantOutput(t, out, "rounds instead of 300, because the store is slow")
}

func TestNodeOfAFailedCreateIsNoBrokenRule(t *testing.T) {
	if out, passed := runConfigured(t, "cleans up late", "rule01/(a-long|concurrent)"); !passed {
		t.Errorf("Run failed on a sound driver that removes the nodes of failed Creates late:\n%s", out)
	}
}

func TestSessionLostByItselfIsNoFailureOfTheRule(t *testing.T) {
	for config, of := range map[string]string{
		"loses a session once":               "rule07/delete-removes",
		"loses a session once, in a release": "rule13/released-does-not-overtake-an-operator$", // this case closes the session before the session can end by itself
	} {
		out, passed := runConfigured(t, config, of)
		if !passed {
			t.Errorf("Run failed after a session had been lost once:\n%s", out)
		}
		wantOutput(t, out, "attempt 1 failed after a session had ended by itself")
	}
}

func TestDriverThatLosesEverySessionFails(t *testing.T) {
	out, passed := runConfigured(t, "loses every session", "rule07/delete-removes")
	if passed {
		t.Errorf("Run passed a driver that loses every session:\n%s", out)
	}
	wantOutput(t, out, "attempt 2 failed", "rule 7 (delete) broken", "rule 7 (delete)                   BROKEN in 1 of the 1 cases that were checked, of 13")
}

// With this driver, a session ends at each slow reply, so the case about slow
// replies proves nothing. Run must report it as not checked.
func TestFaultWithoutEffectIsNoCheck(t *testing.T) {
	out, passed := runConfigured(t, "ends with slow replies", "rule08/(slow|a-session-lives)")
	if !passed {
		t.Errorf("Run failed on a sound driver that loses its session to slow replies:\n%s", out)
	}
	wantOutput(t, out, "rule 8 not checked: no session outlived its timeout with slow replies",
		"--- SKIP: TestConfigured/rule08/slow-replies-do-not-prolong-a-session",
		"rule 8 (session end)              checked in part (1 of 11 cases); not checked, as the fault that was played had no effect: 1 cases")
}

func TestEveryCaseSaysWhyAndHasItsOwnName(t *testing.T) {
	for _, r := range rules {
		seen := make(map[string]bool)
		for _, k := range r.cases {
			if k.why == "" || k.run == nil || seen[k.name] || strings.ContainsAny(k.name, " /") {
				t.Errorf("%v: case %q is not complete, or has a name that is taken or bad", r, k.name)
			}
			seen[k.name] = true
		}
	}
}
