package dlocktest

import (
	"errors"
	"testing"

	"github.com/dlock-go/dlock/driver"
)

// trials report whether sessions have an ability. An ability that a driver may
// leave out in some calls is tried a few times.
var trials = map[need]func(c *check, a, b driver.Session) bool{
	needReplace: func(c *check, a, _ driver.Session) bool {
		_, err := driver.Replace(c.ctx, a, "abilities", c.create(a, "abilities", writer), shared)
		return !errors.Is(err, errors.ErrUnsupported)
	},
	needRead: func(c *check, a, _ driver.Session) bool {
		_, err := driver.Read(c.ctx, a, "abilities", c.create(a, "abilities", writer).Name)
		return !errors.Is(err, errors.ErrUnsupported)
	},
	needWalk: func(c *check, a, _ driver.Session) bool {
		_, err := driver.Walk(c.ctx, a, "")
		return !errors.Is(err, errors.ErrUnsupported)
	},
	needAhead: func(c *check, a, b driver.Session) bool {
		return c.join(a, "abilities", writer, nil).Known || c.join(b, "abilities", writer, last).Known
	},
	needArmed: func(c *check, a, b driver.Session) bool {
		c.create(a, "abilities", writer)
		return c.join(b, "abilities", writer, last).Watch.C != nil || c.join(a, "abilities", writer, last).Watch.C != nil
	},
	needReleased: func(c *check, a, b driver.Session) bool {
		for range 5 {
			p := c.create(a, "abilities", writer)
			q, w := c.waitFor(b, "abilities", p.Node)
			c.release(a, "abilities", p)
			if c.awaitNews(w, "release of the node ahead") {
				return true
			}
			c.delete(b, "abilities", q)
		}
		return false
	},
}

// probe returns the abilities of the driver's sessions, and fails t if one is
// missing that the configuration demands. It is no subtest, because go test
// -run might leave a subtest out.
func probe(t *testing.T, config Config) (have need) {
	t.Helper()
	if v := runCase(t, config, 0, rule{number: 10, name: "methods"}, testCase{
		name: "connect",
		why:  "nothing else can be checked without a session",
		run:  func(c *check) { c.session() },
	}); v != passed {
		t.FailNow()
	}
	for n, try := range trials {
		if succeeds(t, config, try) {
			have |= n
		}
	}
	for _, a := range config.Abilities {
		switch n := needOf(a); {
		case n == 0:
			t.Errorf("dlocktest: Config.Abilities holds %q, which is no ability", a)
		case have&n == 0:
			t.Errorf("dlocktest: Config.Abilities holds %s, and the driver's sessions do not have that ability", a)
		}
	}
	return have
}

// succeeds tries an ability. It tries again if a session was lost. Any other
// failure shows in the cases.
func succeeds(t *testing.T, config Config, try func(c *check, a, b driver.Session) bool) bool {
	for range attempts {
		can := make(chan bool, 1)
		c := &check{t: t, config: config, testCase: testCase{run: func(c *check) { can <- try(c, c.session(), c.session()) }}}
		c.attempt()
		select {
		case can := <-can:
			return can
		default:
		}
		if c.lost == nil {
			break
		}
	}
	return false
}

// last returns the index of the last node ahead, for which a writer waits.
func last(ahead []driver.Node) int { return len(ahead) - 1 }
