package generations

import "time"

const (
	timeout = 10 * time.Second // of every session
	term    = timeout * 3 / 4  // of a lease, from the sending of a heartbeat
	within  = timeout / 8      // time limit of a confirmation
	ahead   = 10 * time.Minute // of tokens if the clock is behind
)

// rules are what keeps two holders apart. A mutation replaces one of them.
type rules struct {
	grace time.Duration

	// confirms returns how many replicas have to confirm an upkeep request.
	confirms func(servers int) int

	// generation returns the generation for a request that s runs. learnt is
	// the one that s had when the client connected to it.
	generation func(s *server, learnt int) int

	// count returns the rest of the grace after the server's clock has advanced.
	count func(rest, advance time.Duration) time.Duration

	// received returns the receipt of an attempt to begin a session that was
	// answered with p after some time.
	received func(p reply, after time.Duration) receipt

	// accepts reports whether a receipt counts in this generation.
	accepts func(from receipt, generation, servers int) bool

	// admits reports whether s may append a node although the generation of its
	// data is another one.
	admits func(s *server) bool

	// raise is called when a generation begins. It raises the last token in d,
	// because d may lack tokens that an earlier generation has given out.
	raise func(d *data, now time.Duration)
}

// receipt tells that enough replicas had received an attempt to begin a
// session. The zero value means that this is not known.
type receipt struct {
	at         time.Duration // by the server's clock, or later
	generation int
}

func asBuilt() *rules {
	r := &rules{
		grace:      timeout,
		confirms:   func(servers int) int { return servers / 2 }, // half of the replicas, rounded up
		generation: func(s *server, _ int) int { return s.replID },
		received:   func(p reply, after time.Duration) receipt { return receipt{p.now + after, p.generation} },
		admits:     func(*server) bool { return false },
		raise: func(d *data, now time.Duration) {
			if d.floor > now {
				d.last = d.floor + ahead
			}
		},
	}
	r.accepts = func(from receipt, generation, servers int) bool {
		return from.generation == generation || r.confirms(servers) == 0
	}
	r.count = func(rest, advance time.Duration) time.Duration {
		return rest - max(min(advance, r.grace/4), 0)
	}
	return r
}

// allConfirm returns the rules of package postgres if synchronous_standby_names
// lists all standbys: because the promoted one no longer confirms, the grace
// counts from the first attempt.
func allConfirm() *rules {
	r := asBuilt()
	r.confirms = func(servers int) int { return servers - 1 }
	r.accepts = func(receipt, int, int) bool { return true }
	return r
}
