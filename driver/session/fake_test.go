package session

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/driver"
)

// fake is a store in memory, with one session.
type fake struct {
	mu       sync.Mutex
	queues   map[string][]Node
	last     int64
	version  int64
	pause    time.Duration
	released string
	requests map[string]int

	// If set, these functions run around each request and can make it fail.
	before, after func(ctx context.Context, what string) error

	next     time.Duration // returned by Beat; zero means an hour
	deadline time.Time     // deadline of another session, or zero
	ended    time.Time     // when that session was ended
}

func newFake() *fake { return &fake{queues: make(map[string][]Node), requests: make(map[string]int)} }

func (f *fake) request(ctx context.Context, what string, do func() error) error {
	f.mu.Lock()
	f.requests[what]++
	before, after := f.before, f.after
	f.mu.Unlock()
	if before != nil {
		if err := before(ctx, what); err != nil {
			return err
		}
	}
	f.mu.Lock()
	err := do()
	f.mu.Unlock()
	if err == nil && after != nil {
		err = after(ctx, what)
	}
	return err
}

func (f *fake) count(what string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests[what]
}

func (f *fake) nodes(queue string) []Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.queues[queue])
}

func (f *fake) Begin(ctx context.Context, _ time.Duration) (b Begun, err error) {
	return b, f.request(ctx, "begin", func() error { return nil })
}

func (f *fake) Beat(ctx context.Context) (next time.Duration, err error) {
	err = f.request(ctx, "beat", func() error {
		if next = cmp.Or(f.next, time.Hour); !f.deadline.IsZero() && f.ended.IsZero() {
			next = time.Until(f.deadline)
		}
		return nil
	})
	return next, err
}

func (f *fake) End(ctx context.Context) error {
	return f.request(ctx, "end", func() error { return nil })
}

func (f *fake) Do(ctx context.Context, c Change) (r Result, err error) {
	what := [...]string{"create", "delete", "replace", "remove", "set value"}[c.Kind]
	err = f.request(ctx, what, func() error {
		r, err = f.do(c)
		return err
	})
	return r, err
}

func (f *fake) do(c Change) (r Result, err error) {
	if c.Kind == Create {
		f.last++
		f.version++
		r.Place = driver.Place{Node: driver.Node{Name: driver.FormatName(c.Prefix, f.last), Seq: f.last}, Token: f.last}
		f.queues[c.Queue] = append(f.queues[c.Queue], Node{Name: r.Place.Name, Token: f.last, Proof: "proof of " + r.Place.Name})
		r.Nodes, r.Announced = slices.Clone(f.queues[c.Queue]), Every
		return r, nil
	}
	i := slices.IndexFunc(f.queues[c.Queue], func(n Node) bool { return n.Token == c.Place.Token })
	if i < 0 {
		return r, driver.ErrGone
	}
	if c.Kind == Delete {
		if c.Cause == driver.Released {
			f.released = f.queues[c.Queue][i].Name
		}
		f.version++
		f.queues[c.Queue] = slices.Delete(slices.Clone(f.queues[c.Queue]), i, i+1)
	}
	return r, nil
}

func (f *fake) other(c Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _ = f.do(c)
}

func (f *fake) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fake) Cancel(ctx context.Context, creates []Change) error {
	return f.request(ctx, "cancel", func() error { return nil })
}

func (f *fake) Look(ctx context.Context, ask []Query) (found []Snapshot, err error) {
	kind := "look"
	if q := ask[0]; q.Await != "" {
		kind = "await"
		there := func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return slices.ContainsFunc(f.queues[q.Queue], func(n Node) bool { return n.Name == q.Await })
		}
		for range 10 {
			if there() {
				time.Sleep(time.Millisecond)
			}
		}
	}
	err = f.request(ctx, kind, func() error {
		for _, q := range ask {
			found = append(found, Snapshot{Nodes: slices.Clone(f.queues[q.Queue]), Version: f.version, Same: q.Known == f.version && f.version > 0,
				Released: f.released, Pause: f.pause})
		}
		return nil
	})
	return found, err
}

type inspected struct{ *fake }

func (inspected) Walk(context.Context, string) ([]string, error) { return nil, nil }

type expirer struct{ *fake }

func (f expirer) Expire(ctx context.Context) (ended bool, err error) {
	err = f.request(ctx, "expire", func() error {
		if ended = !f.deadline.IsZero() && f.ended.IsZero() && !time.Now().Before(f.deadline); ended {
			f.ended = time.Now()
		}
		return nil
	})
	return ended, err
}

// notifier is a fake whose removals the test announces, by calls of host.
type notifier struct {
	*fake
	host *Host
	deaf *atomic.Bool
}

func newNotifier() notifier { return notifier{newFake(), new(Host), new(atomic.Bool)} }

func (f notifier) Start(h Host) { *f.host = h }

func (f notifier) Listening(string, bool) bool { return !f.deaf.Load() }

func (f notifier) Subscribe(ctx context.Context, q Query) (now Snapshot, err error) {
	err = f.request(ctx, "subscribe", func() error {
		now = Snapshot{Nodes: slices.Clone(f.queues[q.Queue]), Version: f.version}
		return nil
	})
	return now, err
}

// partial is a notifier without versions that returns only the queried nodes.
type partial struct{ notifier }

func (f partial) Subscribe(ctx context.Context, q Query) (Snapshot, error) {
	now, err := f.notifier.Subscribe(ctx, q)
	return partOf(now, q), err
}

func (f partial) Look(ctx context.Context, ask []Query) ([]Snapshot, error) {
	all, err := f.notifier.Look(ctx, ask)
	for i := range all {
		all[i] = partOf(all[i], ask[i])
	}
	return all, err
}

func partOf(now Snapshot, q Query) Snapshot {
	return Snapshot{Nodes: slices.DeleteFunc(now.Nodes, func(n Node) bool { return q.Names != nil && !slices.Contains(q.Names, n.Name) })}
}

func connect(t *testing.T, st Store, timeout time.Duration) *Session {
	t.Helper()
	s, err := Connect(t.Context(), st, Config{Name: "fake", ID: "me", Timeout: timeout, Server: func() string { return "here" }})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

var last = func(ahead []driver.Node) int { return len(ahead) - 1 }

func join(t *testing.T, s *Session, queue string) driver.Joined {
	t.Helper()
	j, err := s.Create(t.Context(), queue, driver.NodeSpec{Prefix: "a-W-", Predecessor: last})
	require.NoError(t, err)
	return j
}

func (f *fake) lateBy(t *testing.T) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	require.False(t, f.ended.IsZero(), "the dead session was not ended")
	return f.ended.Sub(f.deadline)
}

func hang(names ...string) func(context.Context, string) error {
	return func(ctx context.Context, what string) error {
		if slices.Contains(names, what) {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
}

var errBroken = errors.Join(driver.ErrUnavailable, errors.New("connection reset"))
