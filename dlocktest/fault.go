package dlocktest

import (
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// The steps below play a fault. They take note of sessions that may end of it.

func (c *check) expire(s driver.Session) {
	c.alive()
	c.doom(s)
	c.config.Expire(c.t, s)
}

// cutOff cuts the session off until heal is called, or the case ends.
func (c *check) cutOff(s driver.Session) (heal func()) {
	c.alive()
	c.doom(s)
	heal = c.config.CutOff(c.t, s)
	if heal == nil {
		c.fatalf("Config.CutOff returned no function to heal")
	}
	heal = sync.OnceFunc(heal)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heals = append(c.heals, heal)
	return heal
}

func (c *check) loseReply(s driver.Session, op Op, committed bool) {
	c.alive()
	c.doom(s) // a driver may give up a session with its connection
	c.config.LoseReply(c.t, s, op, committed)
}

func (c *check) pause(s driver.Session, d time.Duration) {
	c.alive()
	c.doom(s)
	c.config.Pause(c.t, s, d)
}

func (c *check) removeQueue(queue string) {
	c.alive()
	c.config.RemoveQueue(c.t, c.connector(), queue)
}

func (c *check) removeNode(queue, name string) {
	c.alive()
	c.config.RemoveNode(c.t, c.connector(), queue, name)
}

func (c *check) putNode(queue, name string) {
	c.alive()
	c.config.PutNode(c.t, c.connector(), queue, name, []byte("not a lock's"))
}
