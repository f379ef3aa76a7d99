package sqlite

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/driver"
)

func (m *member) Read(ctx context.Context, queue, name string) (info driver.NodeInfo, err error) {
	err = m.db.read(ctx, func(ctx context.Context) error {
		info, err = m.readNode(ctx, queue, name)
		return err
	})
	return info, explain(err)
}

func (m *member) readNode(ctx context.Context, queue, name string) (info driver.NodeInfo, err error) {
	var alive bool
	var seq, created, left *int64
	var owner *string
	_, err = m.db.row(ctx, sqlNode, []any{&alive, &seq, &owner, &info.Data, &created, &left}, byClock(m.presence.id, queue, name)...)
	switch {
	case err != nil:
		return info, err
	case !alive:
		return info, errExpired
	case seq == nil:
		return info, driver.ErrGone
	}
	if owner != nil {
		info.Owner, info.Token = *owner, *seq
	}
	if created != nil {
		info.Created = time.UnixMicro(*created)
	}
	if left != nil {
		info.SessionLeft = max(0, time.Duration(*left)*time.Microsecond)
	}
	return info, nil
}

func (m *member) Walk(ctx context.Context, _ string) (queues []string, err error) {
	err = m.db.read(ctx, func(ctx context.Context) error {
		queues = nil
		return m.db.query(ctx, sqlQueues, func(r rows) error {
			var alive bool
			var queue *string
			if err := r.Scan(&alive, &queue); err != nil {
				return err
			}
			if !alive {
				return errExpired
			}
			if queue != nil {
				queues = append(queues, *queue)
			}
			return nil
		}, m.presence.id)
	})
	return queues, explain(err)
}

func (m *member) Value(ctx context.Context, queue string) (value []byte, token int64, err error) {
	err = m.db.read(ctx, func(ctx context.Context) error {
		var alive bool
		_, err := m.db.row(ctx, sqlValue, []any{&alive, &token, &value}, m.presence.id, queue)
		if err == nil && !alive {
			err = errExpired
		}
		return err
	})
	return value, token, explain(err)
}
