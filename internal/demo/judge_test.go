package demo

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// hold returns an attempt that held the lock, with times in milliseconds. Its
// place in the queue is also its fencing token.
func hold(mode dlock.Mode, place int64, asked, granted, ended int) *attempt {
	t := &attempt{Worker: "w" + string(rune('0'+place)), Mode: mode, Held: true, Token: place}
	t.Place = driver.Place{Node: driver.Node{Name: driver.FormatName(t.Worker+"-"+kind(mode)+"-", place), Seq: place, Epoch: 1}, Token: place}
	t.Asked, t.Granted, t.Ended = ms(asked), ms(granted), ms(ended)
	if mode == dlock.Exclusive {
		t.Increments = incrementsPerHold
	}
	return t
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func right() []*attempt {
	return []*attempt{
		hold(dlock.Shared, 1, 0, 1, 100),
		hold(dlock.Shared, 2, 0, 50, 150),
		hold(dlock.Exclusive, 3, 5, 150, 250),
		hold(dlock.Exclusive, 4, 6, 250, 350),
		hold(dlock.Shared, 5, 7, 351, 450),
		hold(dlock.Shared, 6, 8, 350, 450), // readers may be granted the lock in any order
	}
}

func counted(n int64) counter {
	c := new(memoryCounter)
	c.value.Store(n)
	c.writes.Store(n)
	return c
}

func faultsOf(v *verdict) map[string][]string {
	m := make(map[string][]string)
	for _, c := range v.checks {
		if len(c.faults) > 0 {
			m[c.name] = c.faults
		}
	}
	return m
}

func TestARunThatKeepsTheRulesIsOK(t *testing.T) {
	v := judge(right(), counted(20))
	assert.Empty(t, faultsOf(v))
	assert.Equal(t, statusOK, v.status())
	assert.Equal(t, "OK", v.word())
}

func TestAVerdictNamesTheRuleThatWasBroken(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func([]*attempt)
		rule  string
		says  string
	}{
		"a writer beside a reader":                      {func(h []*attempt) { h[1].Ended = ms(151) }, "alone", "w3 W held it 0.150s to 0.250s, together with w2 R, 0.050s to 0.151s"},
		"a writer beside the longer one of two readers": {func(h []*attempt) { h[0].Ended = ms(151) }, "alone", "together with w1 R, 0.001s to 0.151s"},
		"a writer beside a writer":                      {func(h []*attempt) { h[2].Ended = ms(251) }, "alone", "w4 W held it 0.250s to 0.350s, together with w3 W"},
		"a reader beside a writer":                      {func(h []*attempt) { h[3].Ended = ms(352) }, "alone", "w6 R held it 0.350s to 0.450s, together with w4 W"},
		"a reader within a long hold of a writer": {func(h []*attempt) {
			h[2].Granted, h[2].Ended = ms(150), ms(349)
			h[3].Granted, h[3].Ended = ms(349), ms(460)
		}, "alone", "w6 R held it"},
		"a writer passed a writer": {func(h []*attempt) {
			h[2].Place, h[3].Place = h[3].Place, h[2].Place
		}, "order", "w4-W-0000000004 held it from 0.150s although w3-W-0000000003, from 0.250s, was ahead"},
		"a reader passed a writer": {func(h []*attempt) {
			h[3].Place, h[4].Place = h[4].Place, h[3].Place
			h[3].Place.Seq, h[4].Place.Seq = 6, 3
		}, "order", "was ahead"},
		"a writer passed a reader": {func(h []*attempt) {
			h[0].Granted, h[0].Ended = ms(460), ms(470)
			h[0].Token = 7
		}, "order", "although w1-R-0000000001, from 0.460s, was ahead"},
		"tokens of writers fell":                {func(h []*attempt) { h[2].Token, h[3].Token = 4, 3 }, "tokens", "w4 W got 3, after w3 W had got 4"},
		"tokens of writers were the same":       {func(h []*attempt) { h[3].Token = 3 }, "tokens", "w4 W got 3, after w3 W had got 3"},
		"a reader's token was below a writer's": {func(h []*attempt) { h[4].Token = 1 }, "tokens", "w5 R got 1, after w4 W had got 4"},
		"an increment was lost":                 {func(h []*attempt) { h[2].Increments = 11 }, "counter", "it is 20 in the end, after 21 increments"},
		"the counter changed under a reader":    {func(h []*attempt) { h[0].noteAnomaly("odd") }, "counter", "odd"},
	} {
		t.Run(name, func(t *testing.T) {
			attempts := right()
			c.spoil(attempts)
			v := judge(attempts, counted(20))
			faults := faultsOf(v)
			require.Contains(t, faults, c.rule)
			assert.Contains(t, faults[c.rule][0], c.says)
			assert.Equal(t, statusBad, v.status())
			assert.Contains(t, v.word(), "VIOLATED")
		})
	}
}

func TestAReaderMayPassAReader(t *testing.T) {
	v := judge([]*attempt{hold(dlock.Shared, 1, 0, 20, 30), hold(dlock.Shared, 2, 0, 10, 40)}, counted(0))
	assert.Empty(t, faultsOf(v))
}

func TestSequencesOfDifferentEpochsAreNotCompared(t *testing.T) {
	first, second := hold(dlock.Exclusive, 7, 0, 10, 20), hold(dlock.Exclusive, 0, 30, 40, 50)
	second.Place.Epoch, second.Place.Token, second.Token = 0, 9, 9 // a later epoch may have a smaller number
	assert.Empty(t, faultsOf(judge([]*attempt{first, second}, counted(20))))
}

func TestHoldsInOneInstantFollowEachOther(t *testing.T) {
	second, first := hold(dlock.Exclusive, 2, 0, 10, 10), hold(dlock.Exclusive, 1, 0, 10, 10)
	assert.Empty(t, faultsOf(judge([]*attempt{second, first}, counted(20))))
}

func TestGivingUpBreaksNoRuleAndIsShown(t *testing.T) {
	late := &attempt{Worker: "w9", Mode: dlock.Exclusive, Asked: 0, Ended: ms(5000), Outcome: timedOut, Err: "timed out"}
	v := judge(append(right(), late), counted(20))
	assert.Equal(t, statusOK, v.status())
	assert.Contains(t, text(v), "Gave up: 1. Lost: 0.")
}

func TestErrorsOfTheStoreAreNeitherAViolationNorOK(t *testing.T) {
	broken := &attempt{Worker: "w9", Mode: dlock.Exclusive, Outcome: failed, Err: "quota\x1b[2J"}
	v := judge(append(right(), broken), counted(20))
	v.errs = append(v.errs, "close:\n\t* gone")
	assert.Equal(t, statusBad, v.status())
	assert.Contains(t, text(v), `Error: w9: quota\x1b[2J`)
	assert.Contains(t, text(v), "Error: close: * gone")
	assert.Contains(t, text(v), "no rule was broken, but there were errors")
}

func TestManyErrorsAreCut(t *testing.T) {
	v := judge(right(), counted(20))
	for range 3 + 5 {
		v.errs = append(v.errs, "gone")
	}
	assert.Equal(t, 3, strings.Count(text(v), "Error: gone\n"))
	assert.Contains(t, text(v), "Error: and so on, 5 more\n")
}

func TestWithoutAGrantNothingIsChecked(t *testing.T) {
	v := judge([]*attempt{{Worker: "w1", Mode: dlock.Shared, Outcome: timedOut, Err: "timed out"}}, counted(0))
	assert.Equal(t, statusBad, v.status())
	assert.Contains(t, text(v), "nothing was checked")
}

func TestManyViolationsOfOneRuleAreCut(t *testing.T) {
	var attempts []*attempt
	for i := range 9 {
		attempts = append(attempts, hold(dlock.Exclusive, int64(i), 0, i, 100))
	}
	out := text(judge(attempts, counted(90)))
	assert.Equal(t, 3+1, strings.Count(out, "  VIOLATED  alone "))
	assert.Contains(t, out, "and so on, 5 more")
}

func text(v *verdict) string {
	var out bytes.Buffer
	v.write(&out)
	return out.String()
}
