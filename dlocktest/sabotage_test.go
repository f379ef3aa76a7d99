package dlocktest

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

// base is what saboteurs break: a sound session with every optional interface.
type base = *releasing

// sabotage is a driver that breaks one rule in one way.
type sabotage struct {
	does  string // completes "a driver that ..."
	where string // the stores and habits that lead an author to it
	wrap  func(s base, st *memdriver.Store) driver.Session
}

// sabotages holds them by the id of the rule that they break.
var sabotages = map[string][]sabotage{
	"rule01": orderSabotages,
	"rule02": nameSabotages,
	"rule03": tokenSabotages,
	"rule04": createSabotages,
	"rule05": aloneSabotages,
	"rule06": watchSabotages,
	"rule07": deleteSabotages,
	"rule08": endSabotages,
	"rule09": closeSabotages,
	"rule10": methodSabotages,
	"rule11": leakSabotages,
	"rule12": replaceSabotages,
	"rule13": releaseSabotages,
	"read":   readSabotages,
	"walk":   walkSabotages,
	"locks":  lockSabotages,
}

func TestEveryRuleIsBrokenInTwoWaysAtLeast(t *testing.T) {
	seen := make(map[string]bool)
	for _, r := range rules {
		if n := len(sabotages[r.id()]); r.number > 0 && n < 2 {
			t.Errorf("%v has %d sabotages", r, n)
		}
		for _, s := range sabotages[r.id()] {
			if seen[s.does] || s.where == "" || strings.ContainsAny(s.does+s.where, "|\n`") {
				t.Errorf("%v: the sabotage %q is there twice, or not complete, or does not fit into a table", r, s.does)
			}
			seen[s.does] = true
		}
	}
}

// The session of a saboteur may hear of the faults that are played on it.
type (
	// loser plays lost replies itself, where it says so.
	loser interface {
		loseReply(op Op, committed bool) (done bool)
	}
	// cuttable is told when its line is cut and when it heals.
	cuttable interface{ cut(bool) }
	// mortal is told that its session is about to expire.
	mortal interface{ expiring() }
	// begun is told the context of Connect.
	begun interface{ connectedWith(context.Context) }
)

// perStore keeps one T for each store.
func perStore[T any](make func() *T) func(*memdriver.Store) *T {
	var all sync.Map
	return func(st *memdriver.Store) *T {
		v, _ := all.LoadOrStore(st, make())
		return v.(*T)
	}
}

// releasingConfig is the configuration of a memdriver that also implements Releaser.
func releasingConfig(wrap func(base, *memdriver.Store) driver.Session) Config {
	given := perStore(func() *releases { return &releases{nodes: make(map[released]bool)} })
	return configOf(func(s driver.Session, st *memdriver.Store) driver.Session {
		return wrap(newReleasing(s, given(st)), st)
	})
}

func sound(s base, _ *memdriver.Store) driver.Session { return s }

func TestSoundReleaserPasses(t *testing.T) { Run(t, releasingConfig(sound)) }

// A sabotaged driver may hang in every case, so it gets little time.
const sabotageEnv = "DLOCKTEST_SABOTAGE"

func sabotagedConfig(wrap func(base, *memdriver.Store) driver.Session) Config {
	closeGrace = 500 * time.Millisecond
	config := releasingConfig(wrap)
	config.Timeout = 500 * time.Millisecond
	return config
}

// TestSabotaged runs in a process of its own, for one of the sabotages.
func TestSabotaged(t *testing.T) {
	name := os.Getenv(sabotageEnv)
	if name == "" {
		t.Skip("runs for other tests only, in a process of its own")
	}
	if name == soundName {
		Run(t, sabotagedConfig(sound))
		return
	}
	for _, all := range sabotages {
		if i := slices.IndexFunc(all, func(s sabotage) bool { return s.does == name }); i >= 0 {
			Run(t, sabotagedConfig(all[i].wrap))
			return
		}
	}
	t.Fatalf("no sabotage %q", name)
}

// errPlain is an error that an author has not thought about.
func errPlain(text string) error { return fmt.Errorf("store: %s", text) }
