package recipes

import (
	"cmp"
	"context"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes/internal/engine"
)

// queue is the queue of one name, as one client uses it. An RWMutex is a face
// of it.
type queue struct {
	client  *Client
	name    string
	options options
	engine  *engine.Queue
	err     error // why no call can use the queue; nil if calls can
	notHeld error // ErrNotHeld with the name; allocated once
	key     any   // the holdsKey of the queue; allocated once
}

// want is what a contender asks of a queue. It never changes.
type want struct {
	kind       string // ends the prefix of the contender's nodes
	rule       engine.Rule
	exclusive  bool
	downgraded *want // what a hold has after a downgrade; nil: it cannot be downgraded
}

func newQueue(c *Client, name string, opts []Option) *queue {
	q := &queue{
		client:  c,
		name:    name,
		options: c.options.with(opts),
		notHeld: lockError(name, ErrNotHeld),
		key:     holdsKey{c, name},
	}
	q.engine = &engine.Queue{
		Name:    name,
		Wait:    q.options.wait.wait,
		BackOff: q.options.backOff,
		Renamed: q.reportDowngraded,
		Reaped:  q.reportReaped,
	}
	if err := cmp.Or(driver.CheckQueue(name), q.options.recordErr); err != nil {
		q.err = lockError(name, err)
	}
	return q
}

func (q *queue) reportDowngraded(ctx context.Context, node string, err error) {
	if hook := q.options.trace.Downgraded; hook != nil {
		hook(ctx, DowngradedInfo{Lock: q.name, Node: node, Err: err})
	}
}

func (q *queue) reportReaped(node string, tries int, err error) {
	if hook := q.options.trace.Reaped; hook != nil {
		hook(context.Background(), ReapedInfo{Lock: q.name, Node: node, Tries: tries, Err: err})
	}
}
