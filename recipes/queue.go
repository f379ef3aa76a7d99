package recipes

import (
	"cmp"
	"context"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes/internal/entry"
)

// queue is a client's handle on the queue of one lock. It implements RWMutex
// and the other recipes.
type queue struct {
	client     *Client
	recipe     string // the recipe's name in hooks and logs
	name       string
	options    options
	entryQueue *entry.Queue
	err        error // returned by every call; nil if usable
	notHeld    error
	key        any
}

// want describes what a contender requests. It is immutable.
type want struct {
	kind       string
	rule       entry.Rule
	holds      func(ahead tally) bool // whether no node ahead blocks; agrees with rule
	exclusive  bool
	downgraded *want // the want after a downgrade; nil if impossible

	// For units of a semaphore only:
	units       units
	settledKind string // replaces kind in the node's name; see settle
	err         error  // why the units cannot be acquired
}

func newQueue(c *Client, recipe, name string, opts []Option) *queue {
	q := &queue{
		client:  c,
		name:    name,
		options: c.options.with(opts),
		notHeld: lockError(name, ErrNotHeld),
		key:     holdsKey{client: c, name: name},
	}
	q.recipe = cmp.Or(q.options.recipe, recipe)
	q.entryQueue = &entry.Queue{
		Name:       name,
		WaitPolicy: q.options.wait.wait,
		BackOff:    q.options.backOff,
		Renamed:    q.reportDowngraded,
		Reaped:     q.reportReaped,
	}
	if err := cmp.Or(driver.CheckQueue(name), q.options.recordErr); err != nil {
		q.err = lockError(name, err)
	}
	return q
}

func (q *queue) reportDowngraded(ctx context.Context, node string, err error) {
	if hook := q.options.trace.Downgraded; hook != nil {
		hook(ctx, DowngradedInfo{Recipe: q.recipe, Lock: q.name, Node: node, Err: err})
	}
}

func (q *queue) reportReaped(node string, tries int, err error) {
	if hook := q.options.trace.Reaped; hook != nil {
		hook(context.Background(), ReapedInfo{Recipe: q.recipe, Lock: q.name, Node: node, Tries: tries, Err: err})
	}
}
