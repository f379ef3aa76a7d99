package demo

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dlock-go/dlock"
)

// report adds to the verdict what became of each process.
func (g *group) report(v *verdict) {
	held := byGrant(slices.DeleteFunc(slices.Clone(v.attempts), func(t *attempt) bool { return !t.held }))
	for _, c := range g.children {
		var own []*attempt
		for _, t := range held {
			if t.process == c.number {
				own = append(own, t)
			}
		}
		note := fmt.Sprintf("Process %d: %d shared grants, %d exclusive", c.number, countMode(own, dlock.Shared), countMode(own, dlock.Exclusive))
		if g.death != nil && g.death.child == c {
			note += fmt.Sprintf("; killed while %s held the lock", g.death.worker)
		}
		v.note(note + ".")
	}
	if len(held) > 0 {
		first, last := held[0], held[len(held)-1]
		v.note(fmt.Sprintf("Tokens: from %d, %s, to %d, %s.", first.token, first.worker, last.token, last.worker))
	}
	g.reportDeath(v, held)
}

// reportDeath adds how long the lock stayed with the process that was killed. If
// that is not known, it adds an error, unless the run was interrupted.
func (g *group) reportDeath(v *verdict, held []*attempt) {
	if g.death == nil {
		if !v.interrupted {
			v.errs = append(v.errs, errors.New("no process was killed, because its worker did not get the lock, or lost it"))
		}
		return
	}
	next := slices.IndexFunc(held, func(t *attempt) bool { return t.granted > g.death.at })
	switch {
	case next >= 0:
		t := held[next]
		v.note(fmt.Sprintf("The lock stayed with the dead process for %s. Then its session had ended, and %s got the lock.",
			seconds(t.granted-g.death.at), t.worker))
	case !v.interrupted:
		v.errs = append(v.errs, fmt.Errorf("no worker got the lock after %s was killed; is -timeout shorter than the session timeout of the store?", g.death.child.name()))
	}
}

func (v *verdict) note(line string) { v.notes = append(v.notes, line) }
