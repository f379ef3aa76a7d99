package memdriver

import (
	"fmt"
	"time"
)

const (
	defaultSessionTimeout = 10 * time.Second
	minSessionTimeout     = 10 * time.Millisecond

	// maxSequence is the highest sequence that node names allow: 18 digits.
	maxSequence = 1e18 - 1
	// defaultSequenceLimit leaves room for nodes that other programs add.
	defaultSequenceLimit = maxSequence + 1 - 1<<20
)

// Option configures a store; see [New].
type Option func(*Store)

// WithSessionTimeout sets the time after which the store drops a silent
// session; 10s by default. The lease of a session is three quarters of d.
// WithSessionTimeout panics if d is less than 10ms.
func WithSessionTimeout(d time.Duration) Option {
	if d < minSessionTimeout {
		panic(fmt.Sprintf("memdriver: session timeout %v is less than %v", d, minSessionTimeout))
	}
	return func(st *Store) { st.timeout = d }
}

// WithSequenceStart sets the first sequence of every new queue, so that tests
// can begin with long sequences or near the limit. The default is 0.
// WithSequenceStart panics if seq is negative or has more than 18 digits.
func WithSequenceStart(seq int64) Option {
	checkSequence(seq)
	return func(st *Store) { st.sequenceStart = seq }
}

// WithSequenceLimit sets the exclusive upper limit of sequences. Once a queue
// has reached it, Create returns an error that matches driver.ErrUnavailable
// until all contenders' nodes are gone. Then the sequences start over at 0,
// with a new epoch. The default is 10^18 - 2^20. WithSequenceLimit panics if
// seq is not positive or has more than 18 digits.
func WithSequenceLimit(seq int64) Option {
	checkSequence(seq - 1)
	checkSequence(seq)
	return func(st *Store) { st.sequenceLimit = seq }
}

func checkSequence(seq int64) {
	if seq < 0 || seq > maxSequence {
		panic(fmt.Sprintf("memdriver: sequence %d is out of range", seq))
	}
}
