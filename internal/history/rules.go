package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes"
)

// breaches describes all broken rules that this package can check. Package
// histories checks the rest.
func (r *recorder) breaches() (all []string) {
	for _, a := range r.attempts {
		if what := a.wrong(); what != "" {
			all = append(all, fmt.Sprintf("%v: %s", a, what))
		}
		if r.idle(a) {
			all = append(all, fmt.Sprintf("%v: refused although no node can have blocked it", a))
		}
	}
	return slices.Concat(all, r.outOfOrder(), r.overtaken(), r.repeated())
}

func (a *attempt) String() string {
	how := "Lock"
	switch {
	case a.units > 0 && a.try:
		how = fmt.Sprintf("TryAcquire(%d)", a.units)
	case a.units > 0:
		how = fmt.Sprintf("Acquire(%d)", a.units)
	case a.campaign:
		how = "Campaign"
	case !a.tick.IsZero():
		how = fmt.Sprintf("Once(%d)", a.tick.Unix())
	case a.try && a.mode == dlock.Shared:
		how = "TryRLock"
	case a.try:
		how = "TryLock"
	case a.mode == dlock.Shared:
		how = "RLock"
	}
	return fmt.Sprintf("client %d, %s of %s at [%d, %d]", a.client.slot, how, a.queue, a.call, a.ret)
}

// wrong returns what is wrong with the result of an attempt, or "" for nothing.
func (a *attempt) wrong() string {
	closed := a.client.closed
	switch err := a.err; {
	case closed != nil && closed.ret < a.call && !errors.Is(err, dlock.ErrClosed) && (a.within == nil || err == nil):
		return fmt.Sprintf("the client was closed at %d, but: %v", closed.ret, err)
	case a.got != nil && a.kept && a.got.contender != a.within.contender && a.units == 0 && a.within.units == 0: // semaphores have no re-entry
		return "the re-entry has a lock of its own"
	case a.got != nil && a.got.number > 0 && a.before < a.mode:
		return fmt.Sprintf("entered, but the lock was held in mode %v", a.before)
	case a.kept && errors.Is(err, dlock.ErrLost):
		return fmt.Sprint("the lock is held, but: ", err)
	case err == nil:
	case errors.Is(err, dlock.ErrLost) && a.within != nil:
	case errors.Is(err, dlock.ErrClosed) && closed != nil && closed.call < a.ret:
	case errors.Is(err, dlock.ErrLocked) && a.try:
	case errors.Is(err, dlock.ErrUnavailable) && a.try: // a try does not retry failed requests
	case errors.Is(err, dlock.ErrUpgrade) && a.within != nil && a.mode == dlock.Exclusive:
	case errors.Is(err, dlock.ErrTimeout) && errors.Is(err, context.DeadlineExceeded) && a.limited:
	case !a.tick.IsZero() && errors.Is(err, recipes.ErrNotRun) && (errors.Is(err, driver.ErrUnavailable) || errors.Is(err, dlock.ErrLost)): // the tick could not be read
	case errors.Is(err, context.Canceled) && (a.gaveUp != 0 && a.gaveUp < a.ret || a.within != nil && a.within.over(a.ret)):
	default:
		return fmt.Sprint("no reason for: ", err)
	}
	return ""
}

// over reports whether the Unlock of h began before the given tick, so that the
// context of the Lock may have been cancelled.
func (h *handle) over(by int64) bool { return h.given != nil && h.given.call < by }

// idle reports whether a is a try that was refused although the nodes in the
// queue cannot have blocked it.
func (r *recorder) idle(a *attempt) bool {
	if !a.try || !errors.Is(a.err, dlock.ErrLocked) || a.retried {
		return false
	}
	ahead := 0
	for _, other := range r.attempts {
		if other != a && other.queue == a.queue && other.call < a.ret && r.mayBeThere(other, a) {
			ahead += other.takes(a)
		}
	}
	return !a.lacks(ahead)
}

// takes returns how many Units a takes away from the attempt behind it: all, if
// the two exclude each other.
func (a *attempt) takes(behind *attempt) int {
	switch {
	case a.units > 0 && behind.units > 0:
		return a.units
	case a.mode == dlock.Exclusive, behind.mode == dlock.Exclusive, a.units != behind.units:
		return Units
	}
	return 0
}

// lacks reports whether a must wait if the given number of units is taken.
func (a *attempt) lacks(ahead int) bool { return ahead+max(1, a.units) > Units }

// sees returns the tick up to which the client of an attempt has seen all
// changes of the store, or 0 if unknown.
func (r *recorder) sees(a *attempt) int64 {
	if a.synced == 0 && !r.lagging {
		return a.call
	}
	return a.synced
}

// mayBeThere reports whether the node of a may have been in the queue during
// the refused attempt. Attempt a must have begun before the refusal.
func (r *recorder) mayBeThere(a, refused *attempt) bool {
	gone, ended := int64(forever), a.ended
	sees := r.sees(refused)
	switch {
	case a.within != nil && a.got != nil && a.got.number > 0: // a re-entry has no node of its own
		return false
	case a.got == nil && len(a.queued) == 0 && errors.Is(a.err, dlock.ErrLocked) && !a.retried:
		return a.ret >= sees
	case a.got == nil:
		gone = a.ret
	default:
		last, clean := a.got.leftAt()
		if clean {
			return last >= sees
		}
		gone, ended = last, a.got.ended()
	}
	if gone >= sees {
		return true
	}
	for _, empty := range r.empty[a.queue] {
		if gone < empty && empty < sees {
			return false
		}
	}
	return r.grace == 0 || ended.IsZero() || refused.began.Before(ended.Add(r.grace))
}

// outOfOrder describes nodes whose token is lower than that of an earlier node.
func (r *recorder) outOfOrder() (all []string) {
	queues := make(map[string][]placed)
	for _, a := range r.attempts {
		queues[a.queue] = append(queues[a.queue], a.queued...)
	}
	for queue, nodes := range queues {
		known := slices.Clone(nodes) // sorted by the latest possible creation
		slices.SortFunc(known, func(a, b placed) int { return cmp.Compare(a.ret, b.ret) })
		slices.SortFunc(nodes, func(a, b placed) int { return cmp.Compare(a.call, b.call) })
		var highest int64
		for _, p := range nodes {
			for len(known) > 0 && known[0].ret < p.call {
				highest = max(highest, known[0].token)
				known = known[1:]
			}
			if p.token <= highest {
				all = append(all, fmt.Sprintf("%s: token %d was given after %d, and later than %d", queue, p.token, highest, p.call))
			}
		}
	}
	return all
}

// overtaken describes grants that overtook a conflicting attempt with a lower
// token. It considers only cancelled attempts: package histories checks those
// that were granted.
func (r *recorder) overtaken() (all []string) {
	for _, a := range r.attempts {
		if a.got != nil || len(a.queued) == 0 || a.gaveUp == 0 || a.try {
			continue
		}
		stood := a.queued[len(a.queued)-1]
		for _, c := range r.contenders {
			by := &attempt{mode: c.mode, units: c.units}
			conflict := by.lacks(a.takes(by))
			if c.queue == a.queue && conflict && c.token > stood.token && c.granted.ret < a.stood(stood) && !r.disturbed(a, c) {
				all = append(all, fmt.Sprintf("%v: had token %d and was passed by %d at %d", a, stood.token, c.token, c.granted.ret))
			}
		}
	}
	return all
}

// repeated describes ticks for which Once has run its function again after a
// successful run, although no operator had removed the queue with its value.
func (r *recorder) repeated() (all []string) {
	last := make(map[string]*attempt) // by queue and tick
	for _, a := range r.attempts {
		if a.tick.IsZero() || a.got == nil || a.got.given == nil || a.got.given.err != nil {
			continue
		}
		run := fmt.Sprint(a.queue, " ", a.tick.Unix())
		if before := last[run]; before != nil && before.got.given.ret < a.call && !r.cleared(a.queue, before.call) {
			all = append(all, fmt.Sprintf("%v: run again, after %v", a, before))
		}
		last[run] = a
	}
	return all
}

func (r *recorder) cleared(queue string, tick int64) bool {
	return slices.ContainsFunc(r.causes, func(c cause) bool { return c.queue == queue && c.node == "" && c.ret > tick })
}

// stood returns the tick until which the node p of the attempt certainly
// existed, if no fault removed it.
func (a *attempt) stood(p placed) int64 {
	until := min(a.ret, a.gaveUp)
	if a.client.closed != nil {
		until = min(until, a.client.closed.call)
	}
	return max(until, p.ret)
}

// disturbed reports whether a fault may have removed a's node before c's grant.
func (r *recorder) disturbed(a *attempt, c *contender) bool {
	stood := &contender{client: a.client, queue: a.queue, granted: a.span}
	return slices.ContainsFunc(r.causes, func(cause cause) bool {
		cause.node = ""
		return cause.may(stood, c.granted.ret)
	})
}
