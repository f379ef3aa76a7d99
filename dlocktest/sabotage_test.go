package dlocktest

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// sabotage is a driver with one deliberate mistake, which Run must catch.
type sabotage struct {
	does  string // completes "a driver that ..."
	where string // stores or habits that cause this mistake
	plant plant
}

var sabotages = map[string][]sabotage{
	"rule01":   orderSabotages,
	"rule02":   nameSabotages,
	"rule03":   tokenSabotages,
	"rule04":   createSabotages,
	"rule05":   aheadSabotages,
	"rule06":   watchSabotages,
	"rule07":   deleteSabotages,
	"rule08":   endSabotages,
	"rule09":   closeSabotages,
	"rule10":   methodSabotages,
	"rule11":   leakSabotages,
	"rule12":   replaceSabotages,
	"rule13":   releasedSabotages,
	"read":     readSabotages,
	"walk":     walkSabotages,
	"remove":   removeSabotages,
	"value":    valueSabotages,
	"loss":     lossSabotages,
	"describe": describeSabotages,
	"check":    checkSabotages,
	"locks":    lockSabotages,
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

const sabotageEnv = "DLOCKTEST_SABOTAGE"

func TestSabotaged(t *testing.T) {
	name := os.Getenv(sabotageEnv)
	if name == "" {
		t.Skip("runs for other tests only, in a process of its own")
	}
	each(func(_ rule, s sabotage) {
		if s.does == name {
			// Short limits, because a broken driver may hang in every case.
			closeGrace = 500 * time.Millisecond
			config := configOf(s.plant)
			config.Timeout = 500 * time.Millisecond
			Run(t, config)
		}
	})
}

// errPlain returns an error that matches no error of package driver.
func errPlain(text string) error { return fmt.Errorf("store: %s", text) }

func withPrefix(nodes []driver.Node, prefix string) (found []driver.Node) {
	for _, n := range nodes {
		if p, _, ok := driver.ParseName(n.Name); ok && p == prefix {
			found = append(found, n)
		}
	}
	return found
}
