package recipes

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"iter"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes/internal/entry"
)

const electionRecipe = "election"

// Election chooses one leader among all processes that campaign under one name.
// The leader is the holder of the exclusive lock of that name, and the Lock is
// its term. So an Election and an [RWMutex] of one name exclude each other.
// While readers hold the lock, nobody leads.
//
// An Election has no state, and is safe for concurrent use. Elections come from
// [Client.Election].
type Election struct {
	_       noCopy
	queue   *queue
	patient *queue // the same queue without WithTimeout, for Run
}

// Election returns the election of the given name. The rules for names are
// those of [Client.RWMutex]. Election does no I/O.
//
// The data of [WithData] is the leader's value, such as its address, which
// [Election.Leader] and [Election.Observe] return in [Contender.Record]. It
// stays the same during a term.
func (c *Client) Election(name string, opts ...Option) *Election {
	q := newQueue(c, electionRecipe, name, opts)
	patient := *q
	patient.options.timeout = 0
	return &Election{queue: q, patient: &patient}
}

// Run campaigns, calls the function lead when this process has become the
// leader, and campaigns again if it loses the leadership. Run returns if ctx
// ends while it campaigns, if lead returns during its term, or after a
// permanent error of [Election.Campaign], such as [ErrClosed].
//
// The context passed to lead is one of [Lock.Context]: it is cancelled when the
// term is lost. Run gives the term up only when lead has returned, so lead
// should wait for all goroutines that it has started. If lead returns during
// its term, Run resigns and returns the error of lead, joined with that of
// [Lock.Unlock]. If lead returns after a loss, Run logs its error. If lead
// panics, Run resigns.
//
// Each term has a greater token than the terms before it. An earlier leader may
// believe for a while that it still leads; see [Lock.Token].
//
// Run outlasts outages of the store: after each error that matches
// driver.ErrUnavailable, it pauses as [WithBackOff] says and tries again.
// [WithTimeout] has no effect. Run never re-enters a term: if ctx belongs to a
// term of this election, Run waits until that term has ended.
func (e *Election) Run(ctx context.Context, lead func(ctx context.Context, term *Lock) error) error {
	if err := e.queue.usable(ctx); err != nil {
		return err
	}
	if lead == nil {
		return lockError(e.queue.name, errors.New("nil function"))
	}
	pause := entry.Retries{New: e.queue.options.backOff}
	for {
		term, err := e.patient.acquire(WithoutReentry(ctx), writer, false)
		switch {
		case err == nil:
			pause.Succeeded()
			err := term.do(ctx, lead)
			if !errors.Is(term.Err(), ErrLost) {
				return err
			}
			e.queue.options.logger.Warn("dlock: term lost", "lock", e.queue.name, "node", term.Node(), "error", err)
		case ctx.Err() != nil || !errors.Is(err, driver.ErrUnavailable):
			return err
		default:
			e.queue.client.sleep(ctx, pause.NextEndless())
		}
	}
}

// Campaign waits until this process leads, and returns its term, which
// [Lock.Unlock] ends. Campaign returns the same errors as [RWMutex.Lock].
func (e *Election) Campaign(ctx context.Context) (*Lock, error) {
	return e.queue.acquire(ctx, writer, false)
}

// Leader returns the leader, or an error that matches [ErrNoLeader] if nobody
// leads. By the time Leader returns, another contender may lead. Requests to a
// leader should therefore carry its token, so that a process that is not this
// leader can refuse them. Token and Record are empty if the driver cannot read
// nodes.
func (e *Election) Leader(ctx context.Context) (Contender, error) {
	if err := e.queue.usable(ctx); err != nil {
		return Contender{}, err
	}
	var leader Contender
	err := e.queue.ask(ctx, func(s *session) (err error) {
		leader, err = s.leader(ctx, e.queue.name)
		return err
	})
	if err == nil && leader.Node == "" {
		err = lockError(e.queue.name, ErrNoLeader)
	}
	return leader, err
}

// Observe yields the current leader, and then the new leader after each change,
// in the order of their tokens. A zero Contender means that nobody leads.
// Observe may miss leaders with very short terms.
//
// During an outage, Observe yields one error that matches
// driver.ErrUnavailable. If the caller continues the loop, Observe yields the
// leader again as soon as it is known. Any other error, such as that of ctx or
// [ErrClosed], ends the loop.
//
// Each change costs three requests, or four on ZooKeeper. Contenders that join
// or leave the queue behind the leader cost none.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Contender, error] {
	return func(yield func(Contender, error) bool) {
		var o observer
		observe(ctx, e.queue, func(s *session) (Contender, driver.Watch, error) {
			return s.watchLeader(ctx, e.queue.name)
		}, o.compare, yield)
	}
}

type observer struct {
	seen   Contender // the latest leader
	newest int64     // the latest nonzero token of a leader
	behind time.Time // when tokens below newest first appeared, or zero
}

// longBehind is how long an observer ignores tokens smaller than an earlier
// leader's. A ZooKeeper server that lags behind catches up sooner.
const longBehind = 30 * time.Second

// compare reports whether the leader has changed. The result old means that a
// lagging server has probably shown an earlier leader.
func (o *observer) compare(leader Contender) (changed, old bool) {
	switch {
	case leader.Token == 0 || leader.Token >= o.newest:
		o.behind = time.Time{}
	case o.behind.IsZero():
		o.behind = time.Now()
		return false, true
	case time.Since(o.behind) < longBehind:
		return false, true
	}
	changed = leader.Node != o.seen.Node || leader.Token != o.seen.Token
	o.seen, o.newest = leader, cmp.Or(leader.Token, o.newest)
	return changed, false
}

func (s *session) leader(ctx context.Context, queue string) (Contender, error) {
	for {
		nodes, err := s.List(ctx, queue)
		if err != nil {
			return Contender{}, err
		}
		c, err := s.leaderOf(ctx, queue, nodes)
		if !errors.Is(err, driver.ErrGone) {
			return c, err
		}
	}
}

// watchLeader returns the leader, or a zero Contender, and a watch that ends
// when the leader may have changed.
func (s *session) watchLeader(ctx context.Context, queue string) (Contender, driver.Watch, error) {
	for {
		nodes, err := s.List(ctx, queue)
		var watch driver.Watch
		if err == nil && len(nodes) == 0 {
			watch, err = s.WatchQueue(ctx, queue)
			if err == nil {
				nodes, err = s.List(ctx, queue) // a node may have joined before the watch
			}
		}
		if err == nil && len(nodes) > 0 {
			watch.Stop()
			watch, err = s.Watch(ctx, queue, driver.Place{Node: nodes[0]})
		}
		var c Contender
		if err == nil {
			c, err = s.leaderOf(ctx, queue, nodes) // after the watch was armed, to miss nothing
		}
		if err == nil {
			return c, watch, nil
		}
		watch.Stop()
		if !errors.Is(err, driver.ErrGone) {
			return Contender{}, driver.Watch{}, err
		}
	}
}

// leaderOf returns the holder of the exclusive lock, or a zero Contender. If the
// node is gone by now, the error matches driver.ErrGone.
func (s *session) leaderOf(ctx context.Context, queue string, nodes []driver.Node) (Contender, error) {
	if len(nodes) == 0 || !wantOf(nodes[0]).exclusive {
		return Contender{}, nil
	}
	c := listed(nodes[:1], s.heldSince(queue))[0]
	if err := s.describe(ctx, queue, &c); err != nil && !errors.Is(err, fs.ErrPermission) {
		return Contender{}, err
	}
	return c, nil
}

// Name returns the election's name.
func (e *Election) Name() string {
	return e.queue.name
}

// String returns the election's name, quoted if unprintable.
func (e *Election) String() string {
	return printable(e.queue.name)
}

// GoString describes the election as String does, for the verb %#v.
func (e *Election) GoString() string { return "dlock.Election(" + e.String() + ")" }
