package recipes

import "context"

func (m *RWMutex) lock(ctx context.Context, mode Mode, try bool) (*Lock, error) {
	if m == nil || m.client == nil {
		return nil, errNoClient
	}
	a := newAttempt(m, mode)
	a.try = try
	l, err := m.acquire(ctx, a)
	if hook := m.options.trace.Failed; err != nil && hook != nil {
		if ctx == nil {
			ctx = context.Background()
		}
		hook(ctx, FailedInfo{Lock: m.name, Node: a.progress.now().node, Mode: mode, Try: try, Waited: a.elapsed(), Err: err})
	}
	return l, err
}

func (m *RWMutex) acquire(ctx context.Context, a *attempt) (*Lock, error) {
	if err := m.usable(ctx); err != nil {
		return nil, err
	}
	if l, err := m.reenter(ctx, a.mode); l != nil || err != nil {
		return l, err
	}
	if err := m.client.beginCall(); err != nil {
		return nil, lockError(m.name, err)
	}
	defer m.client.endCall()
	if m.options.timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, m.options.timeout)
		defer cancel()
		ctx = limited
	}
	from, done := m.acquirer()
	defer done()
	return from.acquire(ctx, a)
}

// acquirer gets a lock for a call that is not a re-entry. There are two kinds:
// a contention has a node for this call alone, and the calls of a cohort share
// a node.
type acquirer interface {
	acquire(ctx context.Context, a *attempt) (*Lock, error)
}

// acquirer returns the value whose method acquire gets the lock for one call of
// Lock, RLock, TryLock or TryRLock. If the lock has retention, this is the
// client's cohort. Otherwise it is a new contention. When the call ends, it has
// to run the function done.
func (m *RWMutex) acquirer() (from acquirer, done func()) {
	if m.options.retention == nil {
		return new(contention), func() {}
	}
	c := m.client.cohorts.use(m)
	return c, c.unuse
}

func (m *RWMutex) reportDowngraded(ctx context.Context, node string, err error) {
	if hook := m.options.trace.Downgraded; hook != nil {
		hook(ctx, DowngradedInfo{Lock: m.name, Node: node, Err: err})
	}
}

func (m *RWMutex) reportReaped(node string, tries int, err error) {
	if hook := m.options.trace.Reaped; hook != nil {
		hook(context.Background(), ReapedInfo{Lock: m.name, Node: node, Tries: tries, Err: err})
	}
}
