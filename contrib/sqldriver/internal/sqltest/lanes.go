package sqltest

import (
	"context"

	"github.com/dlock-go/dlock/contrib/sqldriver/internal/session"
	"github.com/dlock-go/dlock/driver"
)

// laneRequests is a Requests whose store is a session.Blocker. Requests on
// lanes have the names of those of the store, and Await.
type laneRequests struct{ *Requests }

// CreateOnLane implements session.Blocker.
func (r laneRequests) CreateOnLane(ctx context.Context, op session.Op, queue, prefix string, data []byte) (int64, []session.Row, session.Lane, error) {
	type created struct {
		token int64
		nodes []session.Row
	}
	var lane session.Lane // of a request that arrived in time
	c, err := ask(ctx, r.Requests, "Create", func(ctx context.Context, st session.Store) (c created, err error) {
		if st != r.Store {
			c.token, c.nodes, err = st.Create(ctx, op, queue, prefix, data)
			return c, err
		}
		c.token, c.nodes, lane, err = st.(session.Blocker).CreateOnLane(ctx, op, queue, prefix, data)
		return c, err
	})
	if lane == nil {
		return c.token, c.nodes, nil, err
	}
	if err != nil {
		lane.Close()
		return 0, nil, nil, err
	}
	return c.token, c.nodes, &requestsLane{lane, r.Requests}, nil
}

type requestsLane struct {
	session.Lane
	requests *Requests
}

func (l *requestsLane) Await(ctx context.Context, id, queue string, own, ahead int64, names []string) (now session.Snapshot, held bool, err error) {
	err = l.requests.request(ctx, "Await", func(ctx context.Context, _ session.Store) (err error) {
		now, held, err = l.Lane.Await(ctx, id, queue, own, ahead, names)
		return err
	})
	return now, held, err
}

func (l *requestsLane) Delete(ctx context.Context, op session.Op, queue string, token int64, why driver.Cause) error {
	return l.last(ctx, "Delete",
		func(ctx context.Context) error { return l.Lane.Delete(ctx, op, queue, token, why) },
		func(ctx context.Context, st session.Store) error { return st.Delete(ctx, op, queue, token, why) })
}

func (l *requestsLane) Replace(ctx context.Context, op session.Op, queue string, token int64, prefix string) error {
	return l.last(ctx, "Replace",
		func(ctx context.Context) error { return l.Lane.Replace(ctx, op, queue, token, prefix) },
		func(ctx context.Context, st session.Store) error { return st.Replace(ctx, op, queue, token, prefix) })
}

// last makes the request that ends the lane. A request that is lost or late
// ends it, too.
func (l *requestsLane) last(ctx context.Context, method string, inTime func(context.Context) error, late func(context.Context, session.Store) error) error {
	sent := false
	err := l.requests.request(ctx, method, func(ctx context.Context, st session.Store) error {
		if st != l.requests.Store {
			return late(ctx, st)
		}
		sent = true
		return inTime(ctx)
	})
	if err != nil && !sent {
		l.Close()
	}
	return err
}
