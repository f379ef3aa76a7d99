package generations

import (
	"maps"
	"slices"
	"time"
)

// data are what a server stores. Replicas copy them as a whole.
type data struct {
	version     int // increases with every change
	id          int // generation of the data
	next        int // generation after the grace; zero if none
	rest, at    time.Duration
	sessions    map[int]time.Duration // deadlines
	queue       []node
	last, floor time.Duration // latest token, latest time seen; tokens are times
}

type node struct {
	token   time.Duration
	session int
	client  *client
}

func (d data) clone() data {
	d.sessions, d.queue = maps.Clone(d.sessions), slices.Clone(d.queue)
	return d
}

type server struct {
	run     *run
	number  int
	master  bool
	down    bool
	boot    int     // changes when s restarts, which ends connections
	follows *server // source of its data; nil for a master
	replID  int     // new at each promotion or start as master
	runID   int     // new at each start
	step    time.Duration
	stepped bool // whether the clock has stepped during this grace
	stalled time.Duration
	data    data
	saved   data
	acked   map[*server]int // latest version confirmed by each replica
}

type status int

const (
	done status = iota
	waits
	ended
	refused // by a replica or a stopped server
	lost
)

type reply struct {
	status     status
	wait       time.Duration
	now        time.Duration // the server's clock
	generation int
	token      time.Duration
	first      bool
}

func (s *server) clock() time.Duration { return s.run.now + s.step }

func (s *server) current(learnt int) bool {
	return s.data.id == s.run.rules.generation(s, learnt)
}

// open begins a session, as open.lua of redisdriver does.
func (s *server) open(session, learnt int, from receipt) reply {
	d, now, rules := &s.data, s.clock(), s.run.rules
	generation := rules.generation(s, learnt)
	d.version++
	if d.id != generation {
		rest, at := rules.grace, now
		if d.next == generation {
			rest, at = d.rest, d.at
			if rules.accepts(from, generation, len(s.run.servers)) {
				rest, at = rules.count(rest, now-max(at, from.at)), now
			}
		}
		d.sessions, d.queue = map[int]time.Duration{}, nil
		d.next, d.rest, d.at = generation, rest, at
		if rest > 0 {
			return reply{status: waits, wait: max(min(rest, rules.grace/5), 1), now: now, generation: generation}
		}
		s.begin(generation)
	}
	s.expire()
	d.sessions[session] = now + timeout
	return reply{now: now, generation: generation}
}

// begin resets top when old data and a slow clock make lower tokens
// unavoidable.
func (s *server) begin(generation int) {
	s.run.note("server %d begins generation %d", s.number, generation)
	d, now := &s.data, s.clock()
	begins := now
	if d.floor > now {
		begins = d.floor + ahead
	}
	if begins <= s.run.latest {
		s.run.top = 0
	}
	s.run.latest = max(s.run.latest, begins)
	d.id, d.next = generation, 0
	s.run.rules.raise(d, now)
	s.note()
}

func (s *server) note() { s.data.floor = max(s.data.last, s.clock()) }

func (s *server) expire() {
	for session, deadline := range s.data.sessions {
		if deadline <= s.clock() {
			s.drop(session)
		}
	}
}

func (s *server) drop(session int) {
	delete(s.data.sessions, session)
	s.data.queue = slices.DeleteFunc(s.data.queue, func(n node) bool { return n.session == session })
}

func (s *server) alive(session, learnt int) bool {
	if !s.current(learnt) {
		return false
	}
	s.expire()
	return s.data.sessions[session] > 0
}

func (s *server) beat(session, learnt int) reply {
	if !s.alive(session, learnt) {
		return reply{status: ended}
	}
	s.data.version++
	s.data.sessions[session] = s.clock() + timeout
	s.note()
	return reply{}
}

func (s *server) create(c *client, session, learnt int) reply {
	if !s.current(learnt) && !s.run.rules.admits(s) {
		return reply{status: ended}
	}
	d, now := &s.data, s.clock()
	s.expire()
	if d.sessions[session] == 0 {
		return reply{status: ended}
	}
	d.version++
	d.last = max(d.last+1, now)
	s.run.latest = max(s.run.latest, now)
	d.queue = append(d.queue, node{d.last, session, c})
	return reply{token: d.last, first: len(d.queue) == 1}
}

func (s *server) look(session, learnt int) reply {
	if !s.alive(session, learnt) {
		return reply{status: ended}
	}
	i := slices.IndexFunc(s.data.queue, func(n node) bool { return n.session == session })
	if i < 0 || i < len(s.data.queue)-1 && !s.current(learnt) {
		return reply{}
	}
	return reply{token: s.data.queue[i].token, first: i == 0}
}

// release removes the holder's node. Only a grant to a waiter needs a current
// generation.
func (s *server) release(session, learnt int, token time.Duration) reply {
	i := slices.IndexFunc(s.data.queue, func(n node) bool { return n.session == session && n.token == token })
	if i < 0 || i < len(s.data.queue)-1 && !s.current(learnt) {
		return reply{status: ended}
	}
	s.data.version++
	s.data.queue = slices.Delete(s.data.queue, i, i+1)
	if i < len(s.data.queue) {
		next := s.data.queue[i]
		s.run.after(s.run.latency(), func() { next.client.granted(next.session, next.token) })
	}
	return reply{}
}
