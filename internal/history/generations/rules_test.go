package generations

import "time"

const (
	timeout = 10 * time.Second // of each session in the store
	term    = timeout * 3 / 4  // of a lease, from sending a heartbeat
	within  = timeout / 8      // time limit of a confirmation
	ahead   = 10 * time.Minute // margin above the tokens of earlier generations
)

// rules prevent two holders at once. TestAttacks replaces one rule at a time.
type rules struct {
	grace time.Duration

	// confirms returns how many replicas must confirm a new or renewed session.
	confirms func(servers int) int

	// generation returns a request's generation. The argument learnt is the
	// client's own.
	generation func(s *server, learnt int) int

	// count returns what is left of the grace after the server's clock advanced.
	count func(rest, advance time.Duration) time.Duration

	// received turns the reply p into a receipt. The argument after is its
	// round-trip time.
	received func(p reply, after time.Duration) receipt

	// accepts reports whether the time since the receipt counts toward the
	// generation's grace.
	accepts func(from receipt, generation, servers int) bool

	// admits reports whether s may append nodes to the data of another
	// generation.
	admits func(s *server) bool

	// raise lifts d.last above the tokens of earlier generations, which d may
	// lack.
	raise func(d *data, now time.Duration)
}

// receipt says when enough replicas had received an attempt to begin a session,
// if known.
type receipt struct {
	at         time.Duration // by the server's clock; never too early
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
// lists all standbys.
func allConfirm() *rules {
	r := asBuilt()
	r.confirms = func(servers int) int { return servers - 1 }
	// A promoted standby confirms no more writes of its old primary.
	r.accepts = func(receipt, int, int) bool { return true }
	return r
}
