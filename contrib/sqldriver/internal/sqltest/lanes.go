package sqltest

import (
	"context"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/session"
	"github.com/dlock-go/dlock/driver"
)

// laneRequests is a Requests whose store is a session.Blocker. It also
// intercepts the requests of lanes, under the names of their methods.
type laneRequests struct{ *Requests }

// Lane implements session.Blocker.
func (r laneRequests) Lane(ctx context.Context) session.Lane {
	lane := r.Store.(session.Blocker).Lane(ctx)
	if lane == nil {
		return nil
	}
	return &requestsLane{lane, r.Requests}
}

type requestsLane struct {
	session.Lane
	requests *Requests
}

func (l *requestsLane) Create(ctx context.Context, op session.Op, queue, prefix string, data []byte) (int64, []session.Row, bool, error) {
	type created struct {
		token int64
		nodes []session.Row
		ok    bool
	}
	c, err := ask(ctx, l.requests, "Create", func(ctx context.Context, st session.Store) (c created, err error) {
		if st != l.requests.Store {
			c.token, c.nodes, err = st.Create(ctx, op, queue, prefix, data)
			return c, err
		}
		c.token, c.nodes, c.ok, err = l.Lane.Create(ctx, op, queue, prefix, data)
		return c, err
	})
	return c.token, c.nodes, c.ok, err
}

func (l *requestsLane) Await(ctx context.Context, id, queue string, own, ahead int64, names []string) (now session.Snapshot, held bool, err error) {
	err = l.requests.request(ctx, "Await", func(ctx context.Context, _ session.Store) (err error) {
		now, held, err = l.Lane.Await(ctx, id, queue, own, ahead, names)
		return err
	})
	return now, held, err
}

func (l *requestsLane) Delete(ctx context.Context, op session.Op, queue string, token int64, why driver.Cause) error {
	return l.requests.request(ctx, "Delete", func(ctx context.Context, st session.Store) error {
		if st != l.requests.Store {
			return st.Delete(ctx, op, queue, token, why)
		}
		return l.Lane.Delete(ctx, op, queue, token, why)
	})
}

func (l *requestsLane) Replace(ctx context.Context, op session.Op, queue string, token int64, prefix string) error {
	return l.requests.request(ctx, "Replace", func(ctx context.Context, st session.Store) error {
		if st != l.requests.Store {
			return st.Replace(ctx, op, queue, token, prefix)
		}
		return l.Lane.Replace(ctx, op, queue, token, prefix)
	})
}
