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
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/memdriver"
)

type wrap = func(base, *memdriver.Store) driver.Session

func of[S driver.Session](sabotaged func(base) S) wrap {
	return func(s base, _ *memdriver.Store) driver.Session { return sabotaged(s) }
}

// sabotage is a driver with one deliberate mistake, which the kit must catch.
type sabotage struct {
	does  string // completes "a driver that ..."
	where string // stores or coding habits that lead drivers to this mistake
	wrap  wrap
}

// sabotages maps the id of each rule to the sabotages that break it.
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

// Optional interfaces of broken sessions. The Config of these tests uses them
// to notify a session of the faults that the kit injects.
type (
	// lossPlayer can make its own request or reply get lost, and reports
	// whether it did.
	lossPlayer interface {
		lose(op faults.Op, committed bool) (done bool)
	}
	// requestHolder implements Config.HoldRequest itself.
	requestHolder interface {
		holdRequest(op faults.Op) (arrive func())
	}
	// cutListener is told when its connection is cut off from the store (true),
	// and when it works again (false).
	cutListener interface{ cut(bool) }
	// resetListener is told when its connection is reset.
	resetListener interface{ reset() }
	// silenceListener is told when notices from the store stop reaching it.
	silenceListener interface{ silenced() }
	// expiryListener is told when the store is about to end its session.
	expiryListener interface{ expiring() }
	// pauseListener is told that its process was paused, and for how long.
	pauseListener interface{ paused(d time.Duration) }
	// lossListener is told before its store loses its data. It may change
	// grace, the time after the loss in which no session can begin.
	lossListener interface {
		losingData(grace *time.Duration) loss
	}
	// connectListener gets the context of its session's Connect.
	connectListener interface{ connectedWith(context.Context) }
)

// cutState is a cutListener that remembers whether the connection is cut.
type cutState struct {
	mu    sync.Mutex
	whole chan struct{} // closed while there is no cut; nil before the first cut
}

func (l *cutState) cut(now bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now {
		l.whole = make(chan struct{})
	} else {
		close(l.whole)
	}
}

// healed returns a channel that is closed when there is no cut.
func (l *cutState) healed() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.whole == nil {
		l.whole = make(chan struct{})
		close(l.whole)
	}
	return l.whole
}

// lateRequests lets a test delay requests that a session sends later.
type lateRequests struct {
	mu sync.Mutex
	// next has an element for each request that is still to be delayed. When
	// that request is sent, the element is set to a function that delivers it.
	next []*func()
}

// hold delays the session's next request. Calling arrive delivers it.
func (l *lateRequests) hold() (arrive func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	request := new(func())
	l.next = append(l.next, request)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if *request != nil {
			(*request)()
		}
	}
}

// sent must be called for each request. It reports whether the request is
// delayed, and if so keeps it for arrive.
func (l *lateRequests) sent(request func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.next) == 0 {
		return false
	}
	*l.next[0] = request
	l.next = l.next[1:]
	return true
}

// errReset is returned by calls whose connection broke.
var errReset = fmt.Errorf("%w: connection reset by peer", driver.ErrUnavailable)

// perStore returns a function that returns one T per store, created on first
// use.
func perStore[T any](create func() *T) func(*memdriver.Store) *T {
	var all sync.Map
	return func(st *memdriver.Store) *T {
		v, _ := all.LoadOrStore(st, create())
		return v.(*T)
	}
}

func sound(s base, _ *memdriver.Store) driver.Session { return s }

// sabotageEnv is the environment variable by which the test tells a child
// process which broken driver to run.
const sabotageEnv = "DLOCKTEST_SABOTAGE"

// sabotagedConfig sets short time limits, because a broken driver may hang in
// every case.
func sabotagedConfig(wrap wrap) Config {
	closeGrace = 500 * time.Millisecond
	config := configOf(wrap)
	config.Timeout = 500 * time.Millisecond
	return config
}

// TestSabotaged runs the kit on one broken driver. Other tests run it in a
// child process. Otherwise it is skipped.
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

// errPlain returns an error that matches no error of package driver, as if the
// driver did not wrap the right one.
func errPlain(text string) error { return fmt.Errorf("store: %s", text) }

func withPrefix(nodes []driver.Node, prefix string) (found []driver.Node) {
	for _, n := range nodes {
		if p, _, ok := driver.ParseName(n.Name); ok && p == prefix {
			found = append(found, n)
		}
	}
	return found
}
