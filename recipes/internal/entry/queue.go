package entry

import (
	"context"
	"math/rand/v2"
	"time"
)

// Queue identifies a queue in the store and holds the settings of its entries.
// It is immutable.
type Queue struct {
	Name       string
	WaitPolicy WaitPolicy
	BackOff    func() BackOff // paces the retries of watchNode, SetValue and Value
	// Renamed is called after each attempt to rename a node.
	Renamed func(ctx context.Context, node string, err error)
	// Reaped is called when a request of the reaper has succeeded. If err is
	// not nil, the reaper has given up instead.
	Reaped func(node string, tries int, err error)
}

// Spec describes the node of an entry.
type Spec struct {
	Prefix string
	Data   []byte // the content; must be unique to each Create
	Rule   Rule
	// Exclusive means that the entry shares the lock with no other entry, so
	// that its removal grants the lock to the next entry.
	Exclusive bool
	// Waits is false for TryLock. If it is true, the driver may arm a watch of
	// the blocking node along with Create.
	Waits bool
}

// Kind selects what a waiting entry watches.
type Kind int

const (
	// WatchPredecessor watches the entry's own node and the one that blocks it.
	WatchPredecessor Kind = iota
	WatchQueue
	// Poll lists the queue periodically, and watches nothing.
	Poll
)

// WaitPolicy selects how an entry waits for its turn.
type WaitPolicy struct {
	Kind     Kind
	Interval time.Duration // the average interval of Poll
}

// NextPoll returns the pause before Poll lists the queue again. It is random,
// so that contenders do not poll in step.
func (w WaitPolicy) NextPoll() time.Duration { return w.Interval/2 + rand.N(w.Interval) }
