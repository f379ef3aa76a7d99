package dlocktest

import (
	"context"

	"github.com/dlock-go/dlock/driver"
)

// diagnoser is a broken session that also provides Diagnose for its connector.
// It may call sound, the correct implementation.
type diagnoser interface {
	diagnose(ctx context.Context, st store, sound func(context.Context, func(driver.Finding)) error, report func(driver.Finding)) error
}

// Diagnose implements driver.Diagnoser.
func (s store) Diagnose(ctx context.Context, report func(driver.Finding)) error {
	if s.wrap != nil {
		inner, err := s.Store.Connect(context.Background())
		if err != nil {
			return err
		}
		defer inner.Close()
		if d, ok := s.wrap(inner.(base), s.Store).(diagnoser); ok {
			return d.diagnose(ctx, s, s.Store.Diagnose, report)
		}
	}
	return s.Store.Diagnose(ctx, report)
}

var diagnoseSabotages = []sabotage{
	{"ends its diagnosis with the login", "a health check that was a Ping before",
		of(func(s base) *diagnosesBadly { return &diagnosesBadly{base: s, omit: driver.CheckRights} })},
	{"warns and does not say what to do", "the text of the server, passed on",
		of(func(s base) *diagnosesBadly { return &diagnosesBadly{base: s, warn: true} })},
	{"takes a setting that weakens a guarantee for a problem", "a strict operator",
		of(func(s base) *diagnosesBadly { return &diagnosesBadly{base: s, strict: true} })},
	{"leaves a lock behind", "a diagnosis that closes no session",
		of(func(s base) *diagnosesBadly { return &diagnosesBadly{base: s, leave: true} })},
	{"diagnoses by taking the locks of others", "a clean-up of old queues before the probe",
		of(func(s base) *diagnosesBadly { return &diagnosesBadly{base: s, steal: true} })},
	{"diagnoses to the end although nobody waits", "requests that take no context",
		of(func(s base) *diagnosesBadly { return &diagnosesBadly{base: s, deaf: true} })},
}

type diagnosesBadly struct {
	base
	omit                             driver.Check
	warn, strict, leave, steal, deaf bool
}

func (d *diagnosesBadly) diagnose(ctx context.Context, st store, sound func(context.Context, func(driver.Finding)) error, report func(driver.Finding)) error {
	over := false
	if d.deaf {
		ctx = context.WithoutCancel(ctx)
	}
	if d.steal {
		st.Faults().RemoveQueue("stock/42")
	}
	if d.leave {
		s, err := st.Store.Connect(ctx)
		if err != nil {
			return err
		}
		if _, err := s.Create(ctx, "dlock-doctor-left", driver.NodeSpec{Prefix: "doctor-W-", Data: []byte("x")}); err != nil {
			return err
		}
	}
	return sound(ctx, func(f driver.Finding) {
		over = over || f.Check == d.omit
		if f.Check == driver.CheckSettings && d.warn {
			f.Level = driver.Warning
		}
		if f.Check == driver.CheckSettings && d.strict {
			f.Level, f.Advice = driver.Problem, "set it"
		}
		if !over {
			report(f)
		}
	})
}
