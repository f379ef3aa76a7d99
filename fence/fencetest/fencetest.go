package fencetest

import (
	"context"
	"testing"
	"time"
)

// A Resource is a value that holders of a lock write and read. Its methods may
// be called concurrently.
type Resource interface {
	// Write stores the value for the holder with that token. It returns an
	// error if the resource refuses the token, or if anything else fails. If a
	// database asks to repeat a transaction, Write repeats it.
	//
	// Write calls pause once, after it has compared the token, and before the
	// value is stored for good. The call returns when another holder's write
	// has ended. If the resource makes that write wait, the call returns after
	// the time in [Options.Wait].
	Write(ctx context.Context, token int64, value string, pause func()) error

	// Read returns the stored value to a reader with that token, or an error
	// if the resource refuses the token.
	Read(ctx context.Context, token int64) (string, error)
}

// Restarter is implemented by resources whose data outlive a restart of the
// program that compares the tokens. Restart ends that program and starts it
// again. If a resource has no Restart, the case "restart" is skipped.
type Restarter interface {
	Restart(ctx context.Context) error
}

// Options are the settings of a run.
type Options struct {
	// Wait limits how long a call of pause waits for the other holder's write,
	// which a resource may block until pause returns. A correct resource passes
	// with any Wait, but a short one may miss a fault. Zero means 500 ms.
	Wait time.Duration
}

// Run runs each case in a subtest, with a new resource from the function open.
// The cases are
//
//   - stale writer: after a later holder has written, an earlier one is refused,
//     and the value stays.
//   - equal token: a holder may write several times, even the same value.
//   - reordered write: a write is paused in the middle, and a later holder
//     writes. The value of the later one stays.
//   - reader: readers that share the lock read in any order, and an outdated
//     reader is refused.
//   - downgrade: a writer that has become a reader reads with its old token,
//     beside readers with later ones.
//   - restart: the greatest token outlives a restart.
//   - large tokens: tokens that differ by one are told apart, even if they are
//     too large for 32 bits or a float64.
func Run(t *testing.T, open func(t *testing.T) Resource) { Options{}.Run(t, open) }

// Run is like the function Run, with these options.
func (o Options) Run(t *testing.T, open func(t *testing.T) Resource) {
	t.Helper()
	if o.Wait <= 0 {
		o.Wait = 500 * time.Millisecond
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			r := run{Resource: open(t), ctx: t.Context(), wait: o.Wait}
			if err := c.check(r); err == errSkip {
				t.Skip(err)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}
