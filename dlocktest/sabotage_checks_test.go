package dlocktest

import (
	"context"

	"github.com/dlock-go/dlock/driver"
)

// checker is a broken session that also provides Check for its connector. It
// may call sound, the correct implementation.
type checker interface {
	check(ctx context.Context, st store, sound func(context.Context) ([]driver.Finding, error)) ([]driver.Finding, error)
}

// Check implements driver.Checker.
func (s store) Check(ctx context.Context) ([]driver.Finding, error) {
	if s.wrap != nil {
		inner, err := s.Store.Connect(context.Background())
		if err != nil {
			return nil, err
		}
		defer inner.Close()
		if c, ok := s.wrap(inner.(base), s.Store).(checker); ok {
			return c.check(ctx, s, s.Store.Check)
		}
	}
	return s.Store.Check(ctx)
}

var checkSabotages = []sabotage{
	{"finds nothing to say", "a check that returns weaknesses alone",
		of(func(s base) *checksBadly { return &checksBadly{base: s, mute: true} })},
	{"warns and does not say what to do", "the text of the server, passed on",
		of(func(s base) *checksBadly {
			return &checksBadly{base: s, change: func(f *driver.Finding) { f.Level = driver.Warning }}
		})},
	{"takes a setting that weakens a guarantee for a problem", "a strict operator",
		of(func(s base) *checksBadly {
			return &checksBadly{base: s, change: func(f *driver.Finding) { f.Level, f.Advice = driver.Problem, "set it" }}
		})},
	{"leaves a lock behind", "a check that closes no session",
		of(func(s base) *checksBadly { return &checksBadly{base: s, leave: true} })},
	{"checks by taking the locks of others", "a clean-up of old queues before the check",
		of(func(s base) *checksBadly { return &checksBadly{base: s, steal: true} })},
	{"checks to the end although nobody waits", "requests that take no context",
		of(func(s base) *checksBadly { return &checksBadly{base: s, deaf: true} })},
}

type checksBadly struct {
	base
	change                   func(*driver.Finding) // may be nil
	mute, leave, steal, deaf bool
}

func (d *checksBadly) check(ctx context.Context, st store, sound func(context.Context) ([]driver.Finding, error)) ([]driver.Finding, error) {
	if d.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	if d.steal {
		st.Faults().RemoveQueue("stock/42")
	}
	if d.leave {
		s, err := st.Store.Connect(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := s.Create(ctx, "dlock-check-left", driver.NodeSpec{Prefix: "check-W-", Data: []byte("x")}); err != nil {
			return nil, err
		}
	}
	found, err := sound(ctx)
	if d.mute {
		found = nil
	}
	for i := range found {
		if d.change != nil {
			d.change(&found[i])
		}
	}
	return found, err
}
