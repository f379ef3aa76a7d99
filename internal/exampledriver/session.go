//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package exampledriver

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver/session"
)

// member is the store as one session sees it.
type member struct {
	store
	id       string
	timeout  time.Duration
	renewing sync.Mutex // held during a renewal
}

var (
	_ session.Expirer   = (*member)(nil)
	_ session.Inspector = (*member)(nil)
)

// Begin implements session.Store.
func (m *member) Begin(ctx context.Context, _ time.Duration) (session.Begun, error) {
	return session.Begun{}, m.update(ctx, func(st *state) error {
		st.Sessions[m.id] = true
		return markUnavailable(errors.Join(os.WriteFile(m.path(m.id), nil, 0o600), m.renew()))
	})
}

// Beat implements session.Store. It does not wait for the store's lock, so a
// busy store does not delay it.
func (m *member) Beat(context.Context) (time.Duration, error) { return 0, m.renew() }

func (m *member) renew() error {
	m.renewing.Lock()
	defer m.renewing.Unlock()
	end := time.Now().Add(m.timeout)
	return chtimes(m.path(m.id), end, end)
}

// Expire implements session.Expirer. It makes an update without a change,
// because every update drops the sessions whose deadlines have passed.
func (m *member) Expire(ctx context.Context) (bool, error) {
	return false, m.change(ctx, func(*state) error { return nil })
}

// End implements session.Store.
func (m *member) End(ctx context.Context) error {
	err := os.Remove(m.path(m.id))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = m.update(ctx, func(*state) error { return nil })
	}
	return err
}

// change is like update, but fails unless the store knows the session.
func (m *member) change(ctx context.Context, f func(*state) error) error {
	return m.update(ctx, m.ifAlive(f))
}

func (m *member) ifAlive(f func(*state) error) func(*state) error {
	return func(st *state) error {
		if !st.Sessions[m.id] {
			return errExpired
		}
		return f(st)
	}
}

// Do implements session.Store.
func (m *member) Do(ctx context.Context, c session.Change) (r session.Result, err error) {
	err = m.change(ctx, func(st *state) error {
		q := st.Queues[c.Queue]
		n, err := q.Apply(c, m.id, st.Last+1)
		st.Last = max(st.Last, n.Token)
		st.store(c.Queue, q)
		r.Place, r.Snapshot = n.Place(), q.Snapshot(st.Version)
		return err
	})
	return r, err
}

// Cancel implements session.Store. It need not prevent later Creates, because a
// change of a file, unlike a request to a server, cannot arrive late.
func (m *member) Cancel(ctx context.Context, creates []session.Change) error {
	return m.change(ctx, func(st *state) error {
		for _, c := range creates {
			st.keep(c.Queue, func(n session.Row) bool { return n.Owner != m.id || n.Number != c.Number })
		}
		return nil
	})
}

// view is like read, but fails unless the store knows the session.
func (m *member) view(ctx context.Context, f func(*state)) error {
	return m.read(ctx, m.ifAlive(func(st *state) error {
		f(st)
		return nil
	}))
}

// Look implements session.Store.
func (m *member) Look(ctx context.Context, ask []session.Query) (found []session.Snapshot, err error) {
	err = m.view(ctx, func(st *state) {
		for _, q := range ask {
			found = append(found, st.Queues[q.Queue].Snapshot(st.Version))
		}
	})
	return found, err
}

// Walk implements session.Inspector.
func (m *member) Walk(ctx context.Context, _ string) (queues []string, err error) {
	err = m.view(ctx, func(st *state) {
		for name, q := range st.Queues {
			if len(q.Nodes) > 0 {
				queues = append(queues, name)
			}
		}
	})
	return queues, err
}
