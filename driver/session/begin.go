package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/reason"
)

var errGrace = errors.New("leases of an earlier generation may not be over")

const lostData = "the store is new or has lost data: no lock is granted"

// begin starts the session. If the store may have lost data, begin first waits
// for the end of all earlier leases.
func (s *Session) begin(ctx context.Context) error {
	began := time.Now()
	var paused error
	for waited := false; ; waited = true {
		err := s.lease.Begin(func() (err error) {
			if s.begun, err = s.beginOnce(ctx); err == nil && s.begun.Wait > 0 {
				err = errGrace
			}
			return err
		})
		if !errors.Is(err, errGrace) {
			if waited {
				s.graced = time.Since(began)
			}
			if err != nil && paused != nil && ctx.Err() != nil {
				err = fmt.Errorf("%w: %w", err, paused)
			}
			return err
		}
		if !waited && !s.begun.Told {
			slog.Default().WarnContext(ctx, s.config.Name+": "+lostData+" until all leases of earlier holders are over",
				"left", s.begun.Rest, "generation", s.begun.Generation, "server", s.config.Server())
		}
		paused = fmt.Errorf("%s for another %v, until %s, when all leases of earlier holders are over",
			lostData, s.begun.Rest.Round(100*time.Millisecond), time.Now().Add(s.begun.Rest).Format(time.TimeOnly))
		reason.Tell(ctx, fmt.Errorf("%w: %w", driver.ErrUnavailable, paused))
		if !Sleep(ctx, s.begun.Wait) {
			return fmt.Errorf("%w: %w: %w", driver.ErrUnavailable, context.Cause(ctx), paused)
		}
	}
}

// beginOnce limits the request to the session timeout, because a later answer
// is useless, but leaves time to connect.
func (s *Session) beginOnce(ctx context.Context) (b Begun, err error) {
	limited, cancel := context.WithTimeout(ctx, max(s.config.Timeout, 5*time.Second))
	defer cancel()
	if b, err = s.store.Begin(limited, s.config.Timeout); err != nil && ctx.Err() == nil {
		err = inTime(err)
	}
	return b, err
}
