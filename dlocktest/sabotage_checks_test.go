package dlocktest

import (
	"context"

	"github.com/dlock-go/dlock/driver"
)

func (s store) Check(ctx context.Context) ([]driver.Finding, error) {
	if s.plant != nil {
		inner, err := s.Store.Connect(context.Background())
		if err != nil {
			return nil, err
		}
		defer inner.Close()
		f := newFaulty(inner.(base), s.Store)
		if s.plant(f); f.check != nil {
			return f.check(ctx, s)
		}
	}
	return s.Store.Check(ctx)
}

func checking(check func(ctx context.Context, st store) ([]driver.Finding, error)) plant {
	return func(s *faulty) { s.check = check }
}

func finding(change func(*driver.Finding)) plant {
	return checking(func(ctx context.Context, st store) ([]driver.Finding, error) {
		found, err := st.Store.Check(ctx)
		for i := range found {
			change(&found[i])
		}
		return found, err
	})
}

var checkSabotages = []sabotage{
	{"finds nothing to say", "a check that returns weaknesses alone",
		checking(func(ctx context.Context, st store) ([]driver.Finding, error) {
			_, err := st.Store.Check(ctx)
			return nil, err
		})},
	{"warns and does not say what to do", "the text of the server, passed on",
		finding(func(f *driver.Finding) { f.Level = driver.Warning })},
	{"takes a setting that weakens a guarantee for a problem", "a strict operator",
		finding(func(f *driver.Finding) { f.Level, f.Advice = driver.Problem, "set it" })},
	{"leaves a lock behind", "a check that closes no session",
		checking(func(ctx context.Context, st store) ([]driver.Finding, error) {
			if s, err := st.Store.Connect(ctx); err == nil {
				_, _ = s.Create(ctx, "dlock-check-left", driver.NodeSpec{Prefix: "check-W-", Data: []byte("x")})
			}
			return st.Store.Check(ctx)
		})},
	{"checks by taking the locks of others", "a clean-up of old queues before the check",
		checking(func(ctx context.Context, st store) ([]driver.Finding, error) {
			st.Faults().RemoveQueue("stock/42")
			return st.Store.Check(ctx)
		})},
	{"checks to the end although nobody waits", "requests that take no context",
		checking(func(ctx context.Context, st store) ([]driver.Finding, error) {
			return st.Store.Check(context.WithoutCancel(ctx))
		})},
}
