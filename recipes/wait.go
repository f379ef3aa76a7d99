package recipes

import (
	"math"
	"time"

	"github.com/dlock-go/dlock/recipes/internal/engine"
)

// Wait is a way of waiting for other contenders, for [WithWait]:
// [WatchPredecessor], [WatchQueue] or [Poll]. The zero Wait is
// WatchPredecessor.
type Wait struct {
	wait engine.Wait
}

// WatchPredecessor returns the Wait by which a contender watches its
// predecessor. A release then wakes only the contenders to which it grants the
// lock. This is the default, and the best Wait on a store that can watch.
func WatchPredecessor() Wait { return Wait{engine.Wait{Kind: engine.WatchPredecessor}} }

// WatchQueue returns the Wait by which a contender watches the whole queue.
// Each change then wakes all waiters (the herd effect), and each of them lists
// the queue.
func WatchQueue() Wait { return Wait{engine.Wait{Kind: engine.WatchQueue}} }

// Poll returns the Wait by which a contender watches nothing and lists the
// queue again and again, after a pause of d on average. Each pause is chosen at
// random between d/2 and 3d/2, so that contenders do not poll at the same time.
// Poll is for stores and firewalls that cannot keep a watch. If d is zero or
// less, it means 100 ms.
func Poll(d time.Duration) Wait {
	if d <= 0 {
		d = 100 * time.Millisecond
	}
	const most = math.MaxInt64 / 2 // so that a pause of 3d/2 does not overflow
	return Wait{engine.Wait{Kind: engine.Poll, Interval: min(d, most)}}
}

// String returns "watch predecessor", "watch queue" or "poll".
func (w Wait) String() string {
	return [...]string{"watch predecessor", "watch queue", "poll"}[w.wait.Kind]
}
