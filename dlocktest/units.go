package dlocktest

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/dlock-go/dlock"
)

const whyUnits = "more would use a resource together than it allows, or some would wait while it is free"

const unitsOfAll = 3

func (cl *client) units(weight int) func() *dlock.Lock {
	return func() *dlock.Lock {
		return cl.check.won(cl.Semaphore(lockName, unitsOfAll).Acquire(cl.check.ctx, weight))
	}
}

func unitsAreLimited(c *check) {
	var held atomic.Int32
	c.together(5, func(i int) {
		weight := 1 + i%unitsOfAll
		acquire := c.client().units(weight)
		for range 8 {
			l := acquire()
			if n := held.Add(int32(weight)); n > unitsOfAll {
				c.errorf("%d units of a semaphore of %d are held", n, unitsOfAll)
			}
			holdBriefly()
			held.Add(-int32(weight))
			c.unlock(l)
		}
	})
}

// unitsAreHandedOver gives all units back at once. The second and third waiter
// notice the release only because the node ahead of each is renamed.
func unitsAreHandedOver(c *check) {
	s := c.session()
	all := c.client().units(unitsOfAll)()
	var waiting []<-chan *dlock.Lock
	for i := range unitsOfAll + 1 {
		waiting = append(waiting, background(c.client().units(1)))
		c.queued(s, i+2)
		c.notGranted(waiting[i], "while all units were held")
	}
	if _, err := c.try(func(ctx context.Context) (*dlock.Lock, error) {
		return c.client().Semaphore(lockName, unitsOfAll).TryAcquire(ctx, 1)
	}); !errors.Is(err, dlock.ErrLocked) {
		c.errorf("TryAcquire of units that are held returned %v, expected ErrLocked", err)
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
}
