package history

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dlock-go/dlock"
)

// history returns the recorded operations, and descriptions of losses that no
// recorded cause explains. Such a loss breaks a rule. All actors must be done.
func (r *recorder) history() (ops []Operation, unexplained []string) {
	for _, c := range r.contenders {
		of, explained := r.operations(c)
		ops = append(ops, of...)
		if !explained {
			unexplained = append(unexplained, fmt.Sprintf("client %d lost #%d of %s (%s, token %d) without a cause",
				c.client.slot, c.id, c.queue, c.node, c.token))
		}
	}
	for _, c := range r.causes {
		if c.sudden() {
			ops = append(ops, Operation{Kind: Clearing, Queue: c.queue, Token: c.upTo, Call: c.call, Return: c.call})
		}
	}
	return ops, unexplained
}

type contenderOps struct {
	*contender
	silent int64 // tick from which an unnoticed loss is possible
	ops    []Operation
}

// add omits operations that begin at s.silent or later, when the lock may be
// lost. Operations in flight then are Maybe.
func (s *contenderOps) add(row int, at span, o Operation) {
	switch {
	case at.call >= s.silent:
		return
	case at.ret >= s.silent:
		o.Maybe = true
	}
	s.put(row, at, o)
}

func (s *contenderOps) put(row int, at span, o Operation) {
	o.Actor, o.Hold, o.Queue, o.Call, o.Return = row, s.id, s.queue, at.call, at.ret
	s.ops = append(s.ops, o)
}

func (r *recorder) operations(c *contender) (ops []Operation, explained bool) {
	lost, silent, explained := r.loss(c)
	s := &contenderOps{contender: c, silent: silent}
	for _, h := range c.handles {
		if h.number == 0 {
			s.put(h.actor, h.entered, Operation{Kind: Grant, Mode: h.mode, Units: c.units, Token: h.token})
		} else {
			s.add(h.actor, h.entered, Operation{Kind: Reentry, Handle: h.number, Mode: h.mode})
		}
		for _, a := range h.answers {
			if a.ret < silent {
				s.put(a.actor, a.span, Operation{Kind: Answer, Handle: h.number, Mode: a.mode})
			}
		}
		for _, e := range h.lowered {
			s.add(h.actor, e.span, Operation{Kind: Downgrade, Handle: h.number, Maybe: e.err != nil})
		}
		if e := h.given; e != nil {
			s.add(h.actor, e.span, Operation{Kind: Unlocking, Handle: h.number, Maybe: isOver(e.err)})
		}
	}
	for _, at := range c.refused {
		if at.ret < silent {
			s.put(closer, at, Operation{Kind: Refusal})
		}
	}
	if lost.call != forever {
		lost.ret = min(lost.ret, r.clock+1)
		s.put(losses+c.client.slot, lost, Operation{Kind: Loss})
	}
	return s.ops, explained
}

// isOver reports whether an error of Unlock shows that the lock had been lost.
// ErrUnlock shows only that the release is not confirmed.
func isOver(err error) bool { return errors.Is(err, dlock.ErrLost) }

func (c *contender) givenBack() (over int64) {
	for _, h := range c.handles {
		over = max(over, h.given.over())
	}
	return over
}

// loss returns when c lost the lock, from when it may have been lost silently,
// and whether a cause explains the loss. Forever means never.
func (r *recorder) loss(c *contender) (lost span, silent int64, explained bool) {
	end := c.givenBack()
	if c.learned != 0 {
		end = min(end, c.learned)
	}
	closing := int64(forever)
	if e := c.client.closed; e != nil && e.call < end && !c.unlocked(e.ret) {
		closing, end = e.call, min(end, e.ret)
	}
	suspect, silent := r.earliest(c, end)
	explained = true
	switch suspect = min(suspect, closing); {
	case c.learned != 0 && suspect == forever: // without a known cause, any time is possible
		suspect, explained = 0, false
	case c.learned != 0:
		suspect = min(suspect, c.lastCall()) // a failed Unlock may have removed the node
	case closing != forever:
	case silent != forever:
		suspect = min(silent, c.lastCall())
	default:
		return span{forever, forever}, silent, true
	}
	return span{max(c.granted.call, suspect), end}, silent, explained
}

// unlocked reports whether all Locks of the contender were unlocked by calls
// that began before the given tick and did not report a loss.
func (c *contender) unlocked(before int64) bool {
	return !slices.ContainsFunc(c.handles, func(h *handle) bool {
		return h.given == nil || h.given.call >= before || isOver(h.given.err)
	})
}

func (c *contender) lastCall() (last int64) {
	for _, h := range c.handles {
		if h.given == nil {
			return forever
		}
		last = max(last, h.given.call)
	}
	return last
}

// earliest returns the first ticks at which any cause, and one that c need not
// notice, may have taken the lock from c.
func (r *recorder) earliest(c *contender, end int64) (any, silent int64) {
	any, silent = forever, forever
	for _, cause := range r.causes {
		if !cause.may(c, end) {
			continue
		}
		from := cause.call
		if cause.sudden() {
			from = cause.ret
		}
		any = min(any, from)
		if !cause.told {
			silent = min(silent, from)
		}
	}
	return any, silent
}
