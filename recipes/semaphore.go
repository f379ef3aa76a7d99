package recipes

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes/internal/entry"
)

// Semaphore is a number of units that all clients of a store share under one
// name, such as the connections that a service allows. Units are granted in
// order of arrival: a call of Acquire that wants few does not pass an earlier
// one that wants many. They are held, and lost with the session, like any
// [Lock].
//
// A Semaphore has no state: two Semaphores of one name share their units, and a
// Semaphore and an [RWMutex] of one name exclude each other. It is safe for
// concurrent use. Semaphores come from [Client.Semaphore].
type Semaphore struct {
	_     noCopy
	queue *queue
	n     int
}

const semaphoreRecipe = "semaphore"

// Semaphore returns the semaphore of the given name, with n units. It does no
// I/O. The rules for names are those of [Client.RWMutex], and n is at most
// 1,000,000. With an invalid name or n, every use of the semaphore returns an
// error.
//
// All clients should pass the same n. If they do not, each contender uses its
// own n, so the number of units held never exceeds the greatest n. Contenders
// behind one with a small n may wait although their own n would suffice, and
// [Semaphore.Queue] shows them as holders. The client logs once that another
// contender uses a different n.
//
// The options apply to this Semaphore only, after those of the client. To save
// requests, acquire several units once and divide them within the process, for
// example with golang.org/x/sync/semaphore.
func (c *Client) Semaphore(name string, n int, opts ...Option) *Semaphore {
	q := newQueue(c, semaphoreRecipe, name, opts)
	q.key = holdsKey{client: q.client, name: name, semaphore: true}
	q.entryQueue.Renamed = func(context.Context, string, error) {} // not a downgrade, so no hook
	if n < 1 || n > maxUnits {
		err := fmt.Errorf("a semaphore has from 1 to %d units, not %d", maxUnits, n)
		q.err = cmp.Or(q.err, lockError(name, err))
	}
	return &Semaphore{queue: q, n: n}
}

// Acquire waits until the caller holds weight units of the semaphore. Unlock
// releases all of them.
//
// A weight below 1 or above n is an error. The other errors are those of
// [RWMutex.Lock], except ErrUpgrade. There is no re-entry: even with a context
// of [Lock.Context], a call takes additional units.
//
// The Lock is shared. Its token tells holders apart, but does not order them.
// The name of its node may change once, soon after a wait. [Lock.Downgrade]
// returns an error.
//
// Waiting costs requests as for an RWMutex, except that the first waiter
// watches the node of every holder. On ZooKeeper, for example, that costs about
// one request per holder at every hand-over.
func (s *Semaphore) Acquire(ctx context.Context, weight int) (*Lock, error) {
	return s.acquire(ctx, weight, false)
}

// TryAcquire is like Acquire, but returns [ErrLocked] instead of waiting for
// other contenders. It does not pass an earlier call that waits for more units,
// even if enough are free. See [RWMutex.TryLock].
func (s *Semaphore) TryAcquire(ctx context.Context, weight int) (*Lock, error) {
	return s.acquire(ctx, weight, true)
}

func (s *Semaphore) acquire(ctx context.Context, weight int, try bool) (*Lock, error) {
	w := units{weight, s.n}.want()
	w.err = s.checkWeight(weight)
	return s.queue.acquire(ctx, w, try)
}

func (s *Semaphore) checkWeight(weight int) error {
	if weight < 1 || weight > s.n {
		return lockError(s.queue.name, fmt.Errorf("cannot acquire %d of %d units", weight, s.n))
	}
	return nil
}

// Locker returns a Locker for [LockAll]. Its methods Lock and TryLock call
// s.Acquire and s.TryAcquire with the given weight.
func (s *Semaphore) Locker(weight int) Locker { return unitsLocker{s, weight} }

type unitsLocker struct {
	*Semaphore
	weight int
}

func (u unitsLocker) Lock(ctx context.Context) (*Lock, error)    { return u.Acquire(ctx, u.weight) }
func (u unitsLocker) TryLock(ctx context.Context) (*Lock, error) { return u.TryAcquire(ctx, u.weight) }

func (u unitsLocker) inQueue(ctx context.Context) (*queue, error) {
	if err := cmp.Or(u.queue.usable(ctx), u.checkWeight(u.weight)); err != nil {
		return nil, err
	}
	return u.queue.undrained()
}

// Queue returns the semaphore's holders and waiters in queue order, with the
// units of each. See [RWMutex.Queue].
func (s *Semaphore) Queue(ctx context.Context) ([]Contender, error) {
	if err := s.queue.usable(ctx); err != nil {
		return nil, err
	}
	return s.queue.list(ctx)
}

// Name returns the semaphore's name.
func (s *Semaphore) Name() string {
	return s.queue.name
}

// String returns the semaphore's name, quoted if unprintable.
func (s *Semaphore) String() string {
	return printable(s.queue.name)
}

// GoString describes the semaphore as String does, for the verb %#v.
func (s *Semaphore) GoString() string { return "dlock.Semaphore(" + s.String() + ")" }

// units holds a contender's weight and the semaphore's total, as its client
// gave them.
type units struct{ weight, of int }

func (u units) want() *want {
	return &want{kind: u.kind(acquiring), settledKind: u.kind(settled), units: u, rule: u.behindUnits, holds: u.fitBehind}
}

// behindUnits is the queueing rule of a semaphore. No node joins ahead of a
// holder, so a grant stays valid. The first waiter watches all holders. Any
// other watches the waiter ahead, whose node is renamed by its grant. Nodes of
// other kinds count as waiters.
func (u units) behindUnits(ahead []driver.Node) []driver.Node {
	var seen tally
	last := -1
	for i, n := range ahead {
		other, _ := unitsOf(n)
		if !other.fitBehind(seen) {
			last = i
		}
		seen.add(n)
	}
	switch {
	case u.fitBehind(seen):
		return nil
	case last >= 0:
		return ahead[last : last+1]
	}
	return ahead
}

func (u units) fitBehind(ahead tally) bool {
	return u.of > 0 && ahead.nodes == ahead.sharers && ahead.units+u.weight <= u.of
}

// settle renames the node of a holder that had to wait, to wake the next
// waiter. Contenders that join later see the grant themselves.
func (c *call) settle(e *entry.Entry) {
	if !e.Followed() || !e.MarkRenamed(c.options.host+c.want.settledKind) {
		return
	}
	c.client.spawn(func() { _ = e.Rename(context.Background()) }) // repeated by the reaper
}

// warnOfUnits logs if a client whose node is ahead uses a different total of
// units. It does so once for each client and name.
func (c *call) warnOfUnits(ahead []driver.Node) {
	own := c.want.units.of
	if own == 0 {
		return
	}
	for _, n := range ahead {
		other, ok := unitsOf(n)
		if !ok || other.of == own {
			continue
		}
		if _, logged := c.client.warned.LoadOrStore(c.name, true); !logged {
			c.options.logger.Warn("dlock: clients of a semaphore count its units differently", "lock", c.name,
				"units", own, "other", other.of)
		}
		return
	}
}

var errUnitsDowngraded = errors.New("units of a semaphore cannot be downgraded")
