package demo

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// hold returns an attempt, with times in milliseconds. Its place is also its
// token.
func hold(mode dlock.Mode, place int, asked, granted, ended int) *attempt {
	name := fmt.Sprintf("w%d", place)
	t := &attempt{Worker: name, Number: place, Mode: mode, Held: true, Token: int64(place)}
	t.Place = driver.Place{Node: driver.Node{Name: name, Seq: int64(place), Epoch: 1}, Token: int64(place)}
	t.Asked, t.Granted, t.Ended = ms(asked), ms(granted), ms(ended)
	return t
}

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func right() *run {
	return &run{settings: &settings{Workers: 6}, counter: counter{value: 7, sum: 7}, attempts: []*attempt{
		hold(dlock.Shared, 1, 0, 1, 100),
		hold(dlock.Shared, 2, 0, 50, 150),
		hold(dlock.Exclusive, 3, 5, 150, 250),
		hold(dlock.Exclusive, 4, 6, 250, 350),
		hold(dlock.Shared, 5, 7, 351, 450),
		hold(dlock.Shared, 6, 8, 350, 450), // readers may be granted in any order
	}}
}

func written(v *verdict) (out string, status int) {
	var b bytes.Buffer
	status = v.write(&b)
	return b.String(), status
}

func TestARunThatKeepsTheRulesIsOK(t *testing.T) {
	out, status := written(judge(right(), false))
	assert.Equal(t, statusOK, status)
	assert.NotContains(t, out, "VIOLATED")
	assert.Contains(t, out, "VERDICT: OK\n")
}

func TestAVerdictNamesTheRuleThatWasBroken(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(r *run, h []*attempt)
		rule  string
		says  string
	}{
		"a writer beside a reader":                      {func(_ *run, h []*attempt) { h[1].Ended = ms(151) }, "alone", "w3 W held it from 0.150s, together with w2 R, 0.050s to 0.151s"},
		"a writer beside the longer one of two readers": {func(_ *run, h []*attempt) { h[0].Ended = ms(151) }, "alone", "together with w1 R, 0.001s to 0.151s"},
		"a writer beside a writer":                      {func(_ *run, h []*attempt) { h[2].Ended = ms(251) }, "alone", "w4 W held it from 0.250s, together with w3 W"},
		"a reader beside a writer":                      {func(_ *run, h []*attempt) { h[3].Ended = ms(352) }, "alone", "w6 R held it from 0.350s, together with w4 W"},
		"a writer passed a writer": {func(_ *run, h []*attempt) {
			h[2].Place, h[3].Place = h[3].Place, h[2].Place
		}, "order", "w4 held it from 0.150s although w3, from 0.250s, was ahead"},
		"a reader passed a writer": {func(_ *run, h []*attempt) {
			h[3].Granted, h[3].Ended, h[4].Granted, h[4].Ended = ms(450), ms(460), ms(350), ms(450)
		}, "order", "was ahead"},
		"a writer passed a reader": {func(_ *run, h []*attempt) {
			h[0].Granted, h[0].Ended, h[0].Token = ms(460), ms(470), 7
		}, "order", "although w1, from 0.460s, was ahead"},
		"tokens of writers fell":                {func(_ *run, h []*attempt) { h[2].Token, h[3].Token = 4, 3 }, "tokens", "w4 W got 3, after w3 W had got 4"},
		"tokens of writers were the same":       {func(_ *run, h []*attempt) { h[3].Token = 3 }, "tokens", "w4 W got 3, after w3 W had got 3"},
		"a reader's token was below a writer's": {func(_ *run, h []*attempt) { h[4].Token = 1 }, "tokens", "w5 R got 1, after w"},
		"a number was lost":                     {func(r *run, _ []*attempt) { r.counter.value = 4 }, "counter", "it is 4 in the end, but the numbers add up to 7"},
		"the counter changed under a reader":    {func(_ *run, h []*attempt) { h[0].Anomaly = "odd\x1b" }, "counter", "odd\ufffd"},
		"a late write was stored": {func(r *run, _ []*attempt) {
			r.Fault, r.struck, r.counter.late = faultKill, ms(200), &lateWrite{ms(300), 5, false}
		}, "late", "the late write of 5 was not refused"},
	} {
		t.Run(name, func(t *testing.T) {
			r := right()
			c.spoil(r, r.attempts)
			out, status := written(judge(r, false))
			require.Regexp(t, fmt.Sprintf(`(?m)^  VIOLATED  %-8s  .*%s`, c.rule, c.says), out)
			assert.Equal(t, statusBad, status)
			assert.Contains(t, out, "VERDICT: VIOLATED")
		})
	}
}

func TestNoRuleIsBrokenByHoldsThat(t *testing.T) {
	later := hold(dlock.Exclusive, 0, 30, 40, 50)
	later.Place.Epoch, later.Token = 0, 9 // sequences of another epoch may be smaller
	for name, attempts := range map[string][]*attempt{
		"let a reader pass a reader":         {hold(dlock.Shared, 1, 0, 20, 30), hold(dlock.Shared, 2, 0, 10, 40)},
		"have sequences of different epochs": {hold(dlock.Exclusive, 7, 0, 10, 20), later},
		"follow each other in one instant":   {hold(dlock.Exclusive, 2, 0, 10, 10), hold(dlock.Exclusive, 1, 0, 10, 10)},
	} {
		_, status := written(judge(&run{settings: &settings{}, attempts: attempts}, false))
		assert.Equal(t, statusOK, status, name)
	}
}

func TestWithoutAGrantNothingIsChecked(t *testing.T) {
	out, status := written(judge(&run{settings: &settings{}, attempts: []*attempt{{Worker: "w1", Mode: dlock.Shared}}}, false))
	assert.Equal(t, statusBad, status)
	assert.Contains(t, out, "nothing was checked")
}

func TestManyViolationsOfOneRuleAreCut(t *testing.T) {
	r := &run{settings: &settings{}}
	for i := range 5 {
		r.attempts = append(r.attempts, hold(dlock.Exclusive, i, 0, i, 100))
	}
	out, _ := written(judge(r, false))
	assert.Equal(t, 3+1, strings.Count(out, "  VIOLATED  alone "))
	assert.Contains(t, out, "and so on, 7 more")
}
