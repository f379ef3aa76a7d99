package dlocktest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock"
)

// The cases in this file use the driver through the locks of package dlock.

const (
	whyExclusion = "two holders of an exclusive lock change the same resource at the same time"
	whyFair      = "a contender could wait for ever while others overtake it"
	whyUnits     = "more would use a resource together than it allows, or some would wait while it is free"
	whyLoss      = "a holder that does not learn of its loss goes on writing beside the next holder"
)

var lockCases = []testCase{
	{name: "one-writer-holds-at-a-time", why: whyExclusion, run: contend(1, "%d holders of an exclusive lock at once",
		func(cl *client, _ int) (func() *dlock.Lock, int) { return cl.lock, 1 })},
	{name: "readers-and-writers-exclude-each-other", why: whyExclusion,
		run: contend(contenders, "holders that together weigh %d hold a lock at once, where a writer weighs 6, and 6 are allowed",
			func(cl *client, n int) (func() *dlock.Lock, int) {
				if n%3 == 0 {
					return cl.lock, contenders
				}
				return cl.rlock, 1
			})},
	{name: "writers-enter-in-the-order-of-the-queue", why: whyFair, run: solo(func(c *check, s session) {
		holder := c.client().lock()
		var waiting []<-chan *dlock.Lock
		for i := range 5 {
			waiting = append(waiting, c.queue(s, i+2, c.client().lock))
		}
		for i := range waiting {
			for _, later := range waiting[i:] {
				c.notGranted(later, "while another writer held it")
			}
			c.unlock(holder)
			holder = c.granted(waiting[i], "after every writer before it had unlocked")
		}
		c.unlock(holder)
		c.queued(s, 0)
	})},
	{name: "a-reader-behind-a-queued-writer-waits", why: "a writer would never get the lock while readers keep coming",
		run: solo(func(c *check, s session) {
			first := c.client().rlock()
			w := c.queue(s, 2, c.client().lock)
			r := c.queue(s, 3, c.client().rlock)
			c.notGranted(w, "while a reader held it")
			c.notGranted(r, "behind a queued writer")
			c.unlock(first)
			second := c.granted(w, "after the reader before it had unlocked")
			c.notGranted(r, "while a writer held it")
			c.unlock(second)
			c.unlock(c.granted(r, "after the writer before it had unlocked"))
		})},
	{name: "a-wait-that-is-given-up-leaves-no-node", why: whyOrphan, run: solo(func(c *check, s session) {
		usual := createTime(c, s)
		holder := c.client().lock()
		c.together(4, func(int) {
			c.client().giveUp(30, usual, func(l *dlock.Lock) {
				c.errorf("Lock returned %s while another client held the lock, expected an error", l.Node())
			})
		})
		c.queued(s, 1)
		c.unlock(holder)
		c.idleLockIsFree(s)
	})},
	{name: "a-connection-that-breaks-under-many-calls-leaves-no-node", why: whyOrphan, needs: needReset,
		run: solo(func(c *check, s session) {
			usual := createTime(c, s)
			cl := c.client()
			c.unlock(cl.lock())
			for range 3 {
				session := cl.session()
				c.together(13, func(i int) {
					if i == 0 {
						time.Sleep(rand.N(4 * usual))
						c.reset(session)
						return
					}
					m := cl.RWMutex([]string{lockName, fmt.Sprintf("%s/%d", lockName, i)}[i%2])
					for range 4 {
						if err := c.won(m.Lock(c.ctx)).Unlock(); err != nil && !errors.Is(err, dlock.ErrLost) && !errors.Is(err, dlock.ErrUnavailable) {
							c.errorf("Unlock of a lock whose connection broke returned %q, expected success, or an error that matches ErrLost or ErrUnavailable", err)
						}
					}
				})
			}
			for i := 1; i < 13; i += 2 {
				eventuallyHolds(c, s, fmt.Sprintf("%s/%d", lockName, i), "a client whose connection broke")
			}
			c.idleLockIsFree(s)
		})},
	{name: "a-downgrade-lets-readers-in-and-no-writer", why: whyReplace, run: solo(func(c *check, s session) {
		l := c.client().lock()
		r := c.queue(s, 2, c.client().rlock)
		w := c.queue(s, 3, c.client().lock)
		if err := l.Downgrade(c.ctx); err != nil {
			c.fatalf("Downgrade returned %q, expected success", err)
		}
		second := c.granted(r, "after the writer before it had downgraded")
		c.notGranted(w, "after a downgrade, while readers held it")
		c.unlock(l)
		c.notGranted(w, "while a reader held it")
		c.unlock(second)
		c.unlock(c.granted(w, "after every reader before it had unlocked"))
	})},
	{name: "no-more-units-are-held-than-there-are", why: whyUnits, run: contend(unitsOfAll, "%d units of a semaphore of 3 are held",
		func(cl *client, n int) (func() *dlock.Lock, int) {
			weight := 1 + n%unitsOfAll
			return cl.units(weight), weight
		})},
	{name: "units-given-back-go-to-every-waiter-that-they-suffice-for", why: whyUnits,
		run: solo(func(c *check, s session) {
			// Only the first waiter watches the holder's node. Each later one
			// watches the waiter ahead, whose node is renamed at its grant.
			all := c.client().units(unitsOfAll)()
			var waiting []<-chan *dlock.Lock
			for i := range unitsOfAll + 1 {
				waiting = append(waiting, c.queue(s, i+2, c.client().units(1)))
				c.notGranted(waiting[i], "while all units were held")
			}
			c.unlock(all)
			var held []*dlock.Lock
			for _, won := range waiting[:unitsOfAll] {
				held = append(held, c.granted(won, "after its units were given back"))
			}
			c.notGranted(waiting[unitsOfAll], "while all units were held")
			c.unlock(held[1])
			c.unlock(c.granted(waiting[unitsOfAll], "after one of several holders had unlocked"))
			c.unlock(held[0])
			c.unlock(held[2])
			c.queued(s, 0)
		})},
	{name: "an-expired-session-loses-its-lock", why: whyLoss, needs: needDrop, run: solo(func(c *check, s session) {
		cl := c.client()
		l := cl.lock()
		won := c.queue(s, 2, c.client().lock)
		c.notGranted(won, "while another writer held it")
		c.expire(cl.session())
		c.lostLock(l, "the store ended the holder's session")
		next := c.granted(won, "after the holder's session had expired")
		if next.Token() <= l.Token() {
			c.errorf("the next holder has token %d after token %d, expected a higher one", next.Token(), l.Token())
		}
		c.unlock(next)
	})},
	{name: "a-holder-cut-off-knows-before-the-next-one-enters", why: whyLoss, needs: needCutOff,
		run: solo(func(c *check, s session) {
			cl := c.client()
			l := cl.lock()
			won := c.queue(s, 2, c.client().lock)
			c.cutOff(cl.session())
			next := c.granted(won, "after the holder was cut off")
			c.wantLost(l, "the grant to the next contender, while the holder was cut off,")
			c.unlock(next)
		})},
	{name: "a-holder-that-was-paused-knows-at-once", why: whyLoss, needs: needPause, run: func(c *check) {
		cl := c.client()
		l := cl.lock()
		c.pause(cl.session(), 2*c.config.sessionTimeout())
		c.wantLost(l, "a pause of twice the session timeout")
		c.unlock(c.client().lock())
	}},
	{name: "a-holder-whose-node-was-removed-is-told", why: whyLoss, needs: needRemoveNode,
		run: solo(func(c *check, s session) {
			l := c.client().lock()
			c.queued(s, 1)
			c.removeNode(lockName, l.Node())
			c.lostLock(l, "an operator removed the lock's node")
		})},
	{name: "a-waiter-whose-node-was-removed-queues-again", why: whyOvertook, needs: needRemoveNode,
		run: solo(func(c *check, s session) {
			holder, first, second := c.client(), c.client(), c.client()
			var inside atomic.Int32
			enter := func(l *dlock.Lock) {
				if n := inside.Add(1); n != 1 && l.Err() == nil {
					c.errorf("%d holders of an exclusive lock at once, after the node of a waiter was removed", n)
				}
				time.Sleep(c.config.sessionTimeout() / 50)
				inside.Add(-1)
				_ = l.Unlock()
			}
			c.rounds(10, func(int) {
				l := holder.lock()
				waiting := []<-chan *dlock.Lock{c.queue(s, 2, first.lock), c.queue(s, 3, second.lock)}
				c.removeNode(lockName, c.list(s, lockName)[1].Name)
				c.unlock(l)
				c.together(2, func(i int) { enter(c.granted(waiting[i], "after the holder had unlocked")) })
				c.queued(s, 0)
			})
		})},
	{name: "a-waiter-whose-session-expires-queues-again", why: "it would wait for ever, or hold the lock without a node", needs: needDrop,
		run: solo(func(c *check, s session) {
			holder := c.client().lock()
			cl := c.client()
			won := c.queue(s, 2, cl.lock)
			before := cl.session()
			c.expire(before)
			c.eventually(func() (any, bool) {
				nodes := c.list(s, lockName)
				return nodes, cl.session() != before && len(nodes) == 2
			}, "the waiter has a node in a new session")
			c.notGranted(won, "while another writer held it")
			c.unlock(holder)
			c.unlock(c.granted(won, "after it had queued again with a new session"))
			c.queued(s, 0)
		})},
}

const contenders = 6

// contend returns a case in which clients take a lock again and again. The sum
// of the holders' weights must never exceed the parameter most.
func contend(most int, tooMany string, how func(cl *client, n int) (acquire func() *dlock.Lock, weight int)) func(*check) {
	return func(c *check) {
		var inside occupants
		var highest atomic.Int64
		highest.Store(math.MinInt64)
		c.together(contenders, func(i int) {
			cl := c.client()
			for n := range 12 {
				acquire, weight := how(cl, i+n)
				l := acquire()
				if before := highest.Load(); weight == most && l.Token() <= before {
					c.errorf("a holder has token %d after one with token %d, expected a higher one", l.Token(), before)
				}
				raise(&highest, l.Token())
				inside.visit(c, weight, most, tooMany)
				c.unlock(l)
			}
		})
	}
}

// occupants is the total weight of a lock's holders. It is atomic, because the
// race detector does not see the lock's ordering.
type occupants struct{ weight atomic.Int32 }

func (o *occupants) visit(c *check, weight, most int, tooMany string) {
	if n := o.weight.Add(int32(weight)); n > int32(most) {
		c.errorf(tooMany, n)
	}
	holdBriefly()
	o.weight.Add(-int32(weight))
}

func (c *check) lostLock(l *dlock.Lock, after string) {
	await(c, l.Lost(), "Lost is still open after %s, expected it to close", after)
	c.wantLost(l, after)
}

func (c *check) wantLost(l *dlock.Lock, after string) {
	if err := l.Err(); !errors.Is(err, dlock.ErrLost) {
		c.fatalf("after %s Err of the lock returned %v, expected an error that matches ErrLost", after, err)
	}
	if err := l.Unlock(); !errors.Is(err, dlock.ErrLost) {
		c.errorf("after %s Unlock returned %v, expected an error that matches ErrLost", after, err)
	}
}
