package generations

import "time"

func (s *server) replicate() {
	r, m := s.run, s.follows
	r.after(r.span(timeout/8), s.replicate)
	if s.down || m == nil || m.down || r.now < s.stalled {
		return
	}
	s.data, s.replID = m.data.clone(), m.replID
	version, id := s.data.version, m.replID
	r.after(r.span(timeout/100), func() {
		if m.master && m.replID == id {
			m.acked[s] = max(m.acked[s], version)
		}
	})
}

func (s *server) boots() {
	s.boot++
	s.runID = s.run.fresh()
	s.down = false
}

func (s *server) promote() {
	s.master, s.follows = true, nil
	s.replID = s.run.fresh()
	s.acked = make(map[*server]int)
	s.stepped = false
}

func (s *server) follow(m *server) {
	if s == m || s.follows == m {
		return
	}
	s.run.note("server %d follows server %d", s.number, m.number)
	s.master, s.follows = false, m
	s.acked = nil
}

func (r *run) disturb() {
	if r.calm {
		return
	}
	r.after(r.span(timeout/2), r.disturb)
	s := r.servers[r.rand.IntN(len(r.servers))]
	switch n := r.rand.IntN(100); {
	case n < 30:
		r.failOver(s)
	case n < 40:
		r.swap(s)
	case n < 55:
		s.restart()
	case n < 60:
		r.note("server %d is emptied", r.official.number)
		r.official.data = data{version: r.official.data.version + 1, sessions: map[int]time.Duration{}}
	case n < 65:
		s.saved = s.data.clone()
	case n < 72:
		s.stalled = r.now + r.span(timeout)
	default:
		s.stepInGrace()
	}
}

// failOver promotes s. The old master dies, becomes a replica, or keeps
// answering its clients.
func (r *run) failOver(s *server) {
	old := r.official
	if s.master || s.down {
		return
	}
	r.note("server %d is promoted, with version %d of %d", s.number, s.data.version, old.data.version)
	r.official = s
	s.promote()
	s.stepClock()
	switch r.rand.IntN(3) {
	case 0:
		old.restart()
	case 1:
		old.follow(s)
	}
	for _, x := range r.servers {
		r.after(r.span(2*timeout), func() { x.follow(r.official) })
	}
}

func (r *run) swap(s *server) {
	if old := r.official; old != s && !s.down && !old.down && !s.master {
		r.failOver(s)
		old.follow(s)
		r.after(r.span(timeout/5), func() { r.failOver(old) })
	}
}

// restart stops s and starts it with all of its data, older data or none.
func (s *server) restart() {
	if s.down {
		return
	}
	s.down = true
	s.run.note("server %d stops", s.number)
	s.run.after(s.run.span(timeout/2), func() {
		s.boots()
		switch s.run.rand.IntN(3) {
		case 0:
			s.data = s.saved.clone()
		case 1:
			s.data = data{sessions: map[int]time.Duration{}}
		}
		s.run.note("server %d starts with version %d", s.number, s.data.version)
		if s.master {
			s.promote()
			s.stepClock()
		}
	})
}

func (s *server) stepClock() {
	if !s.run.calm {
		s.step = []time.Duration{0, 0, -time.Minute, time.Minute}[s.run.rand.IntN(4)]
		s.run.note("the clock of server %d is %v ahead", s.number, s.step)
	}
}

// stepInGrace steps the clock once, like a starting machine that asks a time
// server.
func (s *server) stepInGrace() {
	if s.master && !s.down && !s.stepped && s.data.next == s.run.rules.generation(s, s.replID) {
		s.stepClock()
		s.stepped = true
	}
}

func (r *run) calmDown() {
	r.note("the trouble ends")
	r.calm = true
	for _, s := range r.servers {
		s.stalled = 0
		s.follow(r.official)
	}
}
