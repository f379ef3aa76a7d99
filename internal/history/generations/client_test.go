package generations

import "time"

// client repeatedly acquires and releases the lock, with one session and at
// most one node.
type client struct {
	run     *run
	number  int
	server  *server
	boot    int
	learnt  int
	session int
	lease   time.Duration // end of the lease; zero without a session
	waits   time.Duration // token of its waiting node; zero if none
	holds   time.Duration // token of its held lock; zero if none
}

func (c *client) live(session int) bool { return c.session == session && c.run.now < c.lease }

func (c *client) believes() bool { return c.holds > 0 && c.run.now < c.lease }

// dial connects to a server, usually the official master.
func (c *client) dial() {
	c.server = c.run.official
	if c.run.chance(20) {
		c.server = c.run.servers[c.run.rand.IntN(len(c.run.servers))]
	}
	c.boot, c.learnt = c.server.boot, c.server.replID
}

// A script runs on s. Its argument learnt is the generation when the client
// connected.
type script func(s *server, learnt int) reply

// call tries other servers after refusals, and replies with status lost after a
// time limit.
func (c *client) call(upkeep bool, script script, back func(reply)) {
	answered := false
	answer := func(p reply) {
		if !answered {
			answered = true
			back(p)
		}
	}
	c.run.after(timeout/2, func() { answer(reply{status: lost}) })
	var try func()
	try = func() {
		c.try(upkeep, script, func(p reply) {
			if p.status != refused {
				answer(p)
			} else if !answered {
				c.dial()
				c.run.after(c.run.span(timeout/20), try)
			}
		})
	}
	try()
}

func (c *client) try(upkeep bool, script script, back func(reply)) {
	s, boot, learnt := c.server, c.boot, c.learnt
	send := func(p reply) { c.run.send(func() { back(p) }) }
	c.run.send(func() {
		if s.down || s.boot != boot || !s.master {
			send(reply{status: refused})
			return
		}
		p := script(s, learnt)
		if !upkeep || p.status == ended {
			send(p)
			return
		}
		c.run.confirm(s, func(confirmed bool) {
			if !confirmed {
				p = reply{status: lost}
			}
			send(p)
		})
	})
}

func (c *client) connect() {
	c.session = c.run.fresh()
	c.end()
	c.dial()
	c.open(receipt{})
}

func (c *client) open(from receipt) {
	r, session, sent := c.run, c.session, c.run.now
	c.call(true, func(s *server, learnt int) reply { return s.open(session, learnt, from) }, func(p reply) {
		switch {
		case p.status == done && r.now < sent+term:
			c.lease = sent + term
			r.after(timeout/4, func() { c.beat(session) })
			c.contend(session)
		case p.status == waits:
			from := r.rules.received(p, r.now-sent)
			r.after(p.wait, func() { c.open(from) })
		default:
			r.after(r.span(timeout/8), c.connect)
		}
	})
}

func (c *client) beat(session int) {
	if !c.live(session) {
		c.connect()
		return
	}
	sent := c.run.now
	c.call(true, func(s *server, learnt int) reply { return s.beat(session, learnt) }, func(p reply) {
		pause := timeout / 4
		switch {
		case p.status == ended || !c.live(session):
			c.connect()
			return
		case p.status == done:
			c.lease = max(c.lease, sent+term)
		default:
			c.dial()
			pause = timeout / 16
		}
		c.run.after(pause, func() { c.beat(session) })
	})
}

// end gives up a session whose state in the store is unknown or ended.
func (c *client) end() { c.lease, c.waits, c.holds = 0, 0, 0 }

func (c *client) contend(session int) {
	if !c.live(session) {
		return
	}
	c.call(false, func(s *server, learnt int) reply { return s.create(c, session, learnt) }, func(p reply) {
		switch {
		case !c.live(session):
		case p.status != done:
			c.end()
		default:
			c.waits = p.token
			if p.first {
				c.granted(session, p.token)
			}
			c.wait(session)
		}
	})
}

func (c *client) wait(session int) {
	token := c.waits
	if !c.live(session) || token == 0 {
		return
	}
	c.call(false, func(s *server, learnt int) reply { return s.look(session, learnt) }, func(p reply) {
		switch {
		case !c.live(session) || c.waits != token:
		case p.status == ended || p.status == done && p.token == 0:
			c.end()
		case p.status == done && p.first:
			c.granted(session, token)
		default:
			c.run.after(c.run.span(time.Second), func() { c.wait(session) })
		}
	})
}

func (c *client) granted(session int, token time.Duration) {
	if !c.live(session) || c.waits != token {
		return
	}
	c.run.judge(c, token)
	c.waits, c.holds = 0, token
	c.run.after(c.run.span(2*timeout), func() { c.release(session) })
}

func (c *client) release(session int) {
	if !c.live(session) || c.holds == 0 {
		return
	}
	token := c.holds
	c.holds = 0
	c.call(false, func(s *server, learnt int) reply { return s.release(session, learnt, token) }, func(p reply) {
		switch {
		case !c.live(session):
		case p.status == done:
			c.run.after(c.run.span(time.Second), func() { c.contend(session) })
		default:
			c.end()
		}
	})
}
