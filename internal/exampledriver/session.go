//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package exampledriver

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
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

// renew sets the session's deadline to one session timeout from now.
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

// change makes an update, if the store knows the session.
func (m *member) change(ctx context.Context, f func(*state) error) error {
	return m.update(ctx, m.ifAlive(f))
}

// ifAlive returns a function that calls f if the store knows the session.
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
	err = m.change(ctx, func(st *state) (err error) {
		switch c.Kind {
		case session.Create:
			r = m.create(st, c)
		case session.Delete:
			r.Place, err = st.remove(c.Queue, func(n node) bool { return m.owns(n, c.Place) })
		case session.Remove:
			r.Place, err = st.remove(c.Queue, func(n node) bool { return n.Name == c.Place.Name && n.Token == c.Place.Token })
		case session.Replace:
			r.Place, err = m.replace(st, c)
		case session.SetValue:
			err = m.setValue(st, c)
		}
		return err
	})
	return r, err
}

// Cancel implements session.Store. No Create reaches this store late.
func (m *member) Cancel(ctx context.Context, creates []session.Change) error {
	return m.change(ctx, func(st *state) error {
		for _, c := range creates {
			st.keep(c.Queue, func(n node) bool { return n.Owner != m.id || n.Number != c.Number })
		}
		return nil
	})
}

func (m *member) create(st *state, c session.Change) (r session.Result) {
	st.Last++
	st.Version++
	r.Place = driver.Place{Node: driver.Node{Name: driver.FormatName(c.Prefix, st.Last), Seq: st.Last}, Token: st.Last}
	st.Queues[c.Queue] = append(st.Queues[c.Queue], node{r.Place, m.id, c.Number, string(c.Data)})
	r.Nodes = nodes(st.Queues[c.Queue])
	return r
}

// owns reports whether n is the session's node p. It compares tokens, which are
// unique, because the name of a node may change.
func (m *member) owns(n node, p driver.Place) bool { return n.Owner == m.id && n.Token == p.Token }

func (m *member) own(st *state, c session.Change) int {
	return slices.IndexFunc(st.Queues[c.Queue], func(n node) bool { return m.owns(n, c.Place) })
}

func (m *member) replace(st *state, c session.Change) (was driver.Place, err error) {
	i := m.own(st, c)
	if i < 0 {
		return was, driver.ErrGone
	}
	n := &st.Queues[c.Queue][i]
	was, n.Name = n.Place, driver.FormatName(c.Prefix, n.Seq)
	st.Version++
	return was, nil
}

func (m *member) setValue(st *state, c session.Change) error {
	switch {
	case m.own(st, c) < 0:
		return driver.ErrGone
	case st.Values[c.Queue].Token > c.Place.Token:
		return driver.ErrStale
	}
	st.Values[c.Queue] = value{c.Place.Token, c.Data}
	return nil
}

func nodes(all []node) (nodes []session.Node) {
	for _, n := range all {
		nodes = append(nodes, session.Node{Name: n.Name, Token: n.Token})
	}
	return nodes
}

// view reads the state, if the store knows the session.
func (m *member) view(ctx context.Context, f func(*state) error) error {
	return m.read(ctx, m.ifAlive(f))
}

// Look implements session.Store.
func (m *member) Look(ctx context.Context, ask []session.Query) (found []session.Snapshot, err error) {
	err = m.view(ctx, func(st *state) error {
		for _, q := range ask {
			found = append(found, session.Snapshot{Nodes: nodes(st.Queues[q.Queue]), Version: st.Version})
		}
		return nil
	})
	return found, err
}

// Read implements session.Inspector.
func (m *member) Read(ctx context.Context, queue, name string) (info driver.NodeInfo, err error) {
	err = m.view(ctx, func(st *state) error {
		i := slices.IndexFunc(st.Queues[queue], func(n node) bool { return n.Name == name })
		if i < 0 {
			return driver.ErrGone
		}
		n := st.Queues[queue][i]
		info = driver.NodeInfo{Token: n.Token, Data: []byte(n.Data), Owner: n.Owner}
		return nil
	})
	return info, err
}

// Walk implements session.Inspector.
func (m *member) Walk(ctx context.Context, prefix string) (queues []string, err error) {
	err = m.view(ctx, func(st *state) error {
		for q := range st.Queues {
			if prefix == "" || q == prefix || strings.HasPrefix(q, prefix+"/") {
				queues = append(queues, q)
			}
		}
		return nil
	})
	return queues, err
}

// Value implements session.Inspector.
func (m *member) Value(ctx context.Context, queue string) (text []byte, token int64, err error) {
	err = m.view(ctx, func(st *state) error {
		v := st.Values[queue]
		text, token = v.Text, v.Token
		return nil
	})
	return text, token, err
}
