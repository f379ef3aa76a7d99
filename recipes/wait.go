package recipes

import (
	"math/rand/v2"
	"time"
)

// Wait is a way of waiting for other contenders; see [WithWait].
type Wait struct {
	kind     waitKind
	interval time.Duration
}

type waitKind int

const (
	watchPredecessor waitKind = iota
	watchQueue
	poll
)

var (
	// Predecessor watches the last node that is in the way: each release wakes only those who
	// can enter. It is the default, and best where the store can watch.
	Predecessor = Wait{kind: watchPredecessor}

	// AnyChange watches the whole queue: each change wakes everybody who waits (the herd
	// effect), who then ask for the queue.
	AnyChange = Wait{kind: watchQueue}
)

// Poll watches nothing and asks for the queue again and again, after d on average; each pause
// is drawn between d/2 and 3d/2, so that contenders do not fall into step. For stores or
// firewalls that cannot keep a watch. d of zero or less means 100 ms.
func Poll(d time.Duration) Wait {
	if d <= 0 {
		d = 100 * time.Millisecond
	}
	return Wait{kind: poll, interval: d}
}

// String returns "predecessor", "any change" or "poll".
func (w Wait) String() string {
	return [...]string{"predecessor", "any change", "poll"}[w.kind]
}

func (w Wait) pause() time.Duration {
	return w.interval/2 + rand.N(w.interval)
}
