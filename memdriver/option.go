package memdriver

import (
	"fmt"
	"time"
)

const (
	defaultSessionTimeout = 10 * time.Second
	minSessionTimeout     = 10 * time.Millisecond

	// maxSequence is what a name has room for: 18 digits.
	maxSequence = 1e18 - 1
	// defaultSequenceLimit is the high-water mark of sequences, far enough
	// below the maximum to leave room for foreign nodes.
	defaultSequenceLimit = maxSequence + 1 - 1<<20
)

// Option is a setting of a store, given to [New].
type Option func(*Store)

// WithSessionTimeout sets how long the store keeps a session that it does not
// hear of; the session's own lease is three quarters of that. The default is
// 10s. It panics if d is less than 10ms.
func WithSessionTimeout(d time.Duration) Option {
	if d < minSessionTimeout {
		panic(fmt.Sprintf("memdriver: session timeout %v is less than %v", d, minSessionTimeout))
	}
	return func(st *Store) { st.timeout = d }
}

// WithSequenceStart sets the first sequence of every new queue, so that a test
// need not count to where sequences get long or run out. The default is 0. It
// panics if seq is negative or has more than 18 digits.
func WithSequenceStart(seq int64) Option {
	checkSequence(seq)
	return func(st *Store) { st.sequenceStart = seq }
}

// WithSequenceLimit sets the high-water mark of sequences, which is never
// given out. A queue that has reached it takes no more nodes (Create returns
// an error that matches driver.ErrUnavailable) until all its sequenced nodes
// have gone; then it starts over at 0 as a new incarnation, with another epoch.
// The default is 10^18 - 2^20. It panics if seq is not positive or has more than
// 18 digits.
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
