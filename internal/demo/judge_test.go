package demo

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// hold returns an attempt of a worker that held the lock. Times are in
// milliseconds. The number place is both the sequence of the node and its
// token.
func hold(mode dlock.Mode, place int64, asked, granted, ended int) *attempt {
	t := &attempt{worker: "w" + string(rune('0'+place)), mode: mode, held: true, token: place}
	t.place = driver.Place{Node: driver.Node{Name: driver.FormatName(t.worker+"-"+kind(mode)+"-", place), Seq: place, Epoch: 1}, Token: place}
	t.asked, t.granted, t.ended = ms(asked), ms(granted), ms(ended)
	if mode == dlock.Exclusive {
		t.increments = incrementsPerHold
	}
	return t
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// right returns the attempts of a run in which every rule was kept.
func right() []*attempt {
	return []*attempt{
		hold(dlock.Shared, 1, 0, 1, 100),
		hold(dlock.Shared, 2, 0, 50, 150),
		hold(dlock.Exclusive, 3, 5, 150, 250),
		hold(dlock.Exclusive, 4, 6, 250, 350),
		hold(dlock.Shared, 5, 7, 351, 450),
		hold(dlock.Shared, 6, 8, 350, 450), // readers need not get the lock in order
	}
}

func inMemoryTotal(n int64) total { return total{reading: reading{n, n}} }

// faultsOf returns the faults that the verdict reports, by the name of the
// rule.
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
	v := judge(right(), inMemoryTotal(20))
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
		"a writer beside a reader":                      {func(h []*attempt) { h[1].ended = ms(151) }, "alone", "w3 W held it 0.150s to 0.250s, together with w2 R, 0.050s to 0.151s"},
		"a writer beside the longer one of two readers": {func(h []*attempt) { h[0].ended = ms(151) }, "alone", "together with w1 R, 0.001s to 0.151s"},
		"a writer beside a writer":                      {func(h []*attempt) { h[2].ended = ms(251) }, "alone", "w4 W held it 0.250s to 0.350s, together with w3 W"},
		"a reader beside a writer":                      {func(h []*attempt) { h[3].ended = ms(352) }, "alone", "w6 R held it 0.350s to 0.450s, together with w4 W"},
		"a reader within a long hold of a writer": {func(h []*attempt) {
			h[2].granted, h[2].ended = ms(150), ms(349)
			h[3].granted, h[3].ended = ms(349), ms(460)
		}, "alone", "w6 R held it"},
		"a writer passed a writer": {func(h []*attempt) {
			h[2].place, h[3].place = h[3].place, h[2].place
		}, "order", "w4-W-0000000004 held it from 0.150s although w3-W-0000000003, from 0.250s, was ahead"},
		"a reader passed a writer": {func(h []*attempt) {
			h[3].place, h[4].place = h[4].place, h[3].place
			h[3].place.Seq, h[4].place.Seq = 6, 3
		}, "order", "was ahead"},
		"a writer passed a reader": {func(h []*attempt) {
			h[0].granted, h[0].ended = ms(460), ms(470)
			h[0].token = 7
		}, "order", "although w1-R-0000000001, from 0.460s, was ahead"},
		"tokens of writers fell":                {func(h []*attempt) { h[2].token, h[3].token = 4, 3 }, "tokens", "w4 W got 3, after w3 W had got 4"},
		"tokens of writers were the same":       {func(h []*attempt) { h[3].token = 3 }, "tokens", "w4 W got 3, after w3 W had got 3"},
		"a reader's token was below a writer's": {func(h []*attempt) { h[4].token = 1 }, "tokens", "w5 R got 1, after w4 W had got 4"},
		"an increment was lost":                 {func(h []*attempt) { h[2].increments = 11 }, "counter", "it is 20 in the end, after 21 increments"},
		"the counter changed under a reader":    {func(h []*attempt) { h[0].noteAnomaly("odd") }, "counter", "odd"},
	} {
		t.Run(name, func(t *testing.T) {
			attempts := right()
			c.spoil(attempts)
			v := judge(attempts, inMemoryTotal(20))
			faults := faultsOf(v)
			require.Contains(t, faults, c.rule)
			assert.Contains(t, faults[c.rule][0], c.says)
			assert.Equal(t, statusBad, v.status())
			assert.Contains(t, v.word(), "VIOLATED")
		})
	}
}

func TestAReaderMayPassAReader(t *testing.T) {
	v := judge([]*attempt{hold(dlock.Shared, 1, 0, 20, 30), hold(dlock.Shared, 2, 0, 10, 40)}, inMemoryTotal(0))
	assert.Empty(t, faultsOf(v))
}

func TestSequencesOfDifferentEpochsAreNotCompared(t *testing.T) {
	first, second := hold(dlock.Exclusive, 7, 0, 10, 20), hold(dlock.Exclusive, 0, 30, 40, 50)
	second.place.Epoch, second.place.Token, second.token = 0, 9, 9 // an epoch may be smaller than the one before
	assert.Empty(t, faultsOf(judge([]*attempt{first, second}, inMemoryTotal(20))))
}

func TestHoldsInOneInstantFollowEachOther(t *testing.T) {
	second, first := hold(dlock.Exclusive, 2, 0, 10, 10), hold(dlock.Exclusive, 1, 0, 10, 10)
	assert.Empty(t, faultsOf(judge([]*attempt{second, first}, inMemoryTotal(20))))
}

func TestGivingUpBreaksNoRuleAndIsShown(t *testing.T) {
	late := &attempt{worker: "w9", mode: dlock.Exclusive, asked: 0, ended: ms(5000), outcome: timedOut, err: dlock.ErrTimeout}
	v := judge(append(right(), late), inMemoryTotal(20))
	v.addErrors(nil)
	assert.Equal(t, statusOK, v.status())
	assert.Contains(t, text(v), "Gave up: 1. Lost: 0.")
	assert.Contains(t, text(v), "Longest wait: 5.000s, w9.")
}

func TestErrorsOfTheStoreAreNeitherAViolationNorOK(t *testing.T) {
	broken := &attempt{worker: "w9", mode: dlock.Exclusive, outcome: failed, err: errors.New("quota\x1b[2J")}
	v := judge(append(right(), broken), inMemoryTotal(20))
	v.addErrors([]error{errors.New("close:\n\t* gone")})
	assert.Equal(t, statusBad, v.status())
	assert.Contains(t, text(v), `Error: w9: quota\x1b[2J`)
	assert.Contains(t, text(v), "Error: close: * gone")
	assert.Contains(t, text(v), "no rule was broken, but there were errors")
}

func TestManyErrorsAreCut(t *testing.T) {
	v := judge(right(), inMemoryTotal(20))
	for range maxFaults + 5 {
		v.addErrors([]error{errors.New("gone")})
	}
	assert.Equal(t, maxFaults, strings.Count(text(v), "Error: gone\n"))
	assert.Contains(t, text(v), "Error: and so on, 5 more\n")
}

func TestWithoutAGrantNothingIsChecked(t *testing.T) {
	v := judge([]*attempt{{worker: "w1", mode: dlock.Shared, outcome: timedOut, err: dlock.ErrTimeout}}, inMemoryTotal(0))
	assert.Equal(t, statusBad, v.status())
	assert.Contains(t, text(v), "nothing was checked")
}

func TestManyViolationsOfOneRuleAreCut(t *testing.T) {
	var attempts []*attempt
	for i := range 9 {
		attempts = append(attempts, hold(dlock.Exclusive, int64(i), 0, i, 100))
	}
	out := text(judge(attempts, inMemoryTotal(90)))
	assert.Equal(t, maxFaults+1, strings.Count(out, "  VIOLATED  alone "))
	assert.Contains(t, out, "and so on, 5 more")
}

func TestASharedCounterIsNotComparedWithTheIncrementsOfOneProcess(t *testing.T) {
	v := judge(right(), total{reading: reading{70, 70}, shared: true})
	assert.Equal(t, statusOK, v.status())
	assert.Contains(t, text(v), "none of 70 increments was lost, 20 of them were made here")
}

func text(v *verdict) string {
	var out bytes.Buffer
	v.write(&out, &settings{driver: inMemory})
	return out.String()
}
