package history

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/anishathalye/porcupine"

	"github.com/dlock-go/dlock"
)

// span is when something began and when it was over, by the clock that counts.
type span struct{ call, ret int64 }

func (s span) overlaps(o span) bool { return s.call <= o.ret && o.call <= s.ret }

const forever = math.MaxInt64

// hold is one lock that was won, and all that was seen of it.
type hold struct {
	id      int
	client  int
	queue   string
	mode    dlock.Mode // at first
	token   int64
	node    string // see nodeOf
	lock    *dlock.Lock
	granted span
	answers []seen
	lowered *ending // by Downgrade
	given   *ending // by Unlock
	learned int64   // when the loss was first seen; 0: never
}

// seen is an answer "still held".
type seen struct {
	span
	mode dlock.Mode
}

type ending struct {
	span
	err error
}

// cause is something that can take locks away: those of a client, or of a queue, or of one node.
type cause struct {
	span
	what   string
	client int    // -1: none in particular
	queue  string // "": all
	node   string // "": all
	told   bool   // the holder has to know before the store lets anybody in
	upTo   int64  // of a removal of all nodes at once: a token up to which it removed them; 0: not known
}

// sudden tells whether nothing else was seen to begin or end while all nodes up to some token
// were removed. Then no harm is done by putting that before all that came of it.
func (c cause) sudden() bool { return c.upTo > 0 && c.ret == c.call+1 }

// may tells whether a hold that ends by that time can have been taken away by the cause. A
// session that was cut off once may end late.
func (c cause) may(h *hold, end int64) bool {
	switch {
	case c.client >= 0 && c.client != h.client, c.queue != "" && c.queue != h.queue, c.node != "" && c.node != h.node:
		return false
	case c.told:
		return c.call <= end
	}
	return c.overlaps(span{h.granted.call, end})
}

// nodeOf returns the name of a node without its mode, which a downgrade changes.
func nodeOf(name string) string { return strings.Replace(name, "-W-", "-R-", 1) }

// recorder takes down what happens to the locks of one store.
type recorder struct {
	mu     sync.Mutex
	clock  int64
	holds  []*hold
	causes []cause
}

func (r *recorder) tick() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clock++
	return r.clock
}

// cause plays a fault and takes it down. It counts as a cause from now on, also while it is
// being played.
func (r *recorder) cause(c cause, play func()) {
	r.mu.Lock()
	r.clock++
	c.call, c.ret = r.clock, forever
	i := len(r.causes)
	r.causes = append(r.causes, c)
	r.mu.Unlock()
	play()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clock++
	r.causes[i].ret = r.clock
}

// take calls one of the methods that take a lock, and has everybody else asked if it has won.
func (r *recorder) take(client int, queue string, mode dlock.Mode, call func() (*dlock.Lock, error)) (*hold, error) {
	h := &hold{client: client, queue: queue, mode: mode}
	h.granted.call = r.tick()
	l, err := call()
	h.granted.ret = r.tick()
	if err != nil {
		return nil, err
	}
	h.lock, h.token, h.node = l, l.Token(), nodeOf(l.Name())
	r.mu.Lock()
	all := r.holds
	h.id = len(all) + 1
	r.holds = append(r.holds, h)
	r.mu.Unlock()
	for _, other := range all {
		if other.queue == queue {
			r.ask(other)
		}
	}
	return h, nil
}

// ask looks whether a lock is still held, and reports it. One that was given back or is known to
// be lost need not be asked.
func (r *recorder) ask(h *hold) bool {
	r.mu.Lock()
	over := h.learned != 0 || h.given != nil && h.given.ret != forever
	r.mu.Unlock()
	if over {
		return false
	}
	call := r.tick()
	mode := h.lock.Mode()
	err := h.lock.Err()
	same := h.lock.Mode() == mode
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clock++
	switch {
	case err == nil && same:
		h.answers = append(h.answers, seen{span{call, r.clock}, mode})
	case errors.Is(err, dlock.ErrLost) && h.learned == 0:
		h.learned = r.clock
	}
	return err == nil
}

func (r *recorder) downgrade(h *hold, call func() error) error { return r.end(&h.lowered, call) }

func (r *recorder) unlock(h *hold) error { return r.end(&h.given, h.lock.Unlock) }

func (r *recorder) end(e **ending, call func() error) error {
	r.mu.Lock()
	r.clock++
	*e = &ending{span: span{r.clock, forever}}
	r.mu.Unlock()
	err := call()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.clock++
	(*e).ret, (*e).err = r.clock, err
	return err
}

// history returns what has happened for the model, and what needs no model to be wrong: locks
// that were lost although nothing had happened that may take them away. To be called once
// everybody is done.
func (r *recorder) history() (ops []porcupine.Operation, unexplained []string) {
	for _, h := range r.holds {
		of, explained := r.operations(h)
		ops = append(ops, of...)
		if !explained {
			unexplained = append(unexplained, fmt.Sprintf("client %d lost #%d of %s (%s, token %d) without a cause", h.client, h.id, h.queue, h.node, h.token))
		}
	}
	for _, c := range r.causes {
		if c.sudden() {
			ops = append(ops, porcupine.Operation{Input: operation{kind: clearing, queue: c.queue, token: c.upTo}, Call: c.call, Return: c.call})
		}
	}
	return ops, unexplained
}

// operations returns those of one holder.
func (r *recorder) operations(h *hold) (ops []porcupine.Operation, explained bool) {
	add := func(o operation, s span) {
		o.hold, o.queue = h.id, h.queue
		ops = append(ops, porcupine.Operation{ClientId: h.client, Input: o, Call: s.call, Return: s.ret})
	}
	add(operation{kind: grant, mode: h.mode, token: h.token}, h.granted)

	end, lost := h.end()
	suspect, silent := r.earliest(h, end.ret)
	switch {
	case lost && suspect != forever:
		end.call = max(h.granted.call, suspect)
	case lost: // nothing is known of when
		end.call = h.granted.call
	default:
		end.call = max(h.granted.call, min(end.call, silent))
	}
	if end.ret != forever {
		add(operation{kind: release}, end)
	}
	if l := h.lowered; l != nil {
		s := l.span
		if l.err != nil {
			s.ret = max(s.ret, end.ret)
		}
		add(operation{kind: downgrade, maybe: l.err != nil || silent != forever}, s)
	}
	for _, a := range h.answers {
		if a.ret < silent {
			add(operation{kind: answer, mode: a.mode}, a.span)
		}
	}
	return ops, !lost || suspect != forever
}

// end returns when a hold ended as far as its holder knows.
func (h *hold) end() (s span, lost bool) {
	s = span{forever, forever}
	if h.given != nil {
		s, lost = h.given.span, errors.Is(h.given.err, dlock.ErrLost)
	}
	if h.learned != 0 {
		return span{h.granted.call, min(h.learned, s.ret)}, true
	}
	return s, lost
}

// earliest returns when the first cause began that may have taken a hold away, and when the
// first one of which its holder need not have known.
func (r *recorder) earliest(h *hold, end int64) (any, silent int64) {
	any, silent = forever, forever
	for _, c := range r.causes {
		if !c.may(h, end) {
			continue
		}
		from := c.call
		if c.sudden() {
			from = c.ret
		}
		any = min(any, from)
		if !c.told {
			silent = min(silent, from)
		}
	}
	return any, silent
}
