package generations

import "time"

const (
	timeout = 10 * time.Second // of each session in the store
	term    = timeout * 3 / 4  // of a lease, from the sending of a heartbeat
	within  = timeout / 8      // time limit of a confirmation
	ahead   = 10 * time.Minute // added to tokens if a new generation's clock is behind
)

// rules prevent two holders at once. TestAttacks replaces one rule at a time.
type rules struct {
	grace time.Duration

	// confirms returns how many replicas must confirm a new or renewed session.
	confirms func(servers int) int

	// generation returns the generation in which s runs a request. The argument
	// learnt is the generation that s had when the client connected to it.
	generation func(s *server, learnt int) int

	// count returns what is left of the grace after the server's clock advanced.
	count func(rest, advance time.Duration) time.Duration

	// received returns the receipt for an attempt to begin a session. The reply
	// p came the given time after the request was sent.
	received func(p reply, after time.Duration) receipt

	// accepts reports whether the time that has passed since the receipt counts
	// toward the grace of the given generation.
	accepts func(from receipt, generation, servers int) bool

	// admits reports whether s may append a node although the data of s belong
	// to another generation.
	admits func(s *server) bool

	// raise is called when a generation begins. It raises the last token in d,
	// because d may lack tokens that an earlier generation has given out.
	raise func(d *data, now time.Duration)
}

// receipt says when enough replicas had received an attempt to begin a session.
// It is zero if that is unknown.
type receipt struct {
	at         time.Duration // by the server's clock; may be too late, never too early
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

// allConfirm returns the rules for PostgreSQL if synchronous_standby_names
// lists all standbys. A promoted standby confirms no more writes of its old
// primary, so the grace may start with the first attempt to begin a session.
func allConfirm() *rules {
	r := asBuilt()
	r.confirms = func(servers int) int { return servers - 1 }
	r.accepts = func(receipt, int, int) bool { return true }
	return r
}
