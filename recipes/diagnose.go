package recipes

import (
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/diagnose"
)

// Diagnose checks whether the store, the network and the settings are suitable
// for locks, and calls report for each finding. See [driver.Diagnoser]. It uses
// neither the client's session nor its locks, so it also works if Ping fails.
// Because it begins a session and takes a lock of its own, call it when a
// service starts, or in a health check that runs rarely.
//
// Problems of the store are findings and not errors. If Diagnose returns an
// error, the findings are incomplete: the error is that of ctx, or matches
// [ErrClosed] if the client is closed.
func (c *Client) Diagnose(ctx context.Context, report func(driver.Finding)) error {
	c = c.opened()
	if ctx == nil {
		return errors.New("dlock: diagnose: nil context")
	}
	if err := c.beginCall(); err != nil {
		return fmt.Errorf("dlock: diagnose: %w", err)
	}
	defer c.endCall()
	if c.connector == nil {
		return fmt.Errorf("dlock: diagnose: %w", errNoConnector)
	}
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-c.done:
			cancel()
		case <-limited.Done():
		}
	}()
	err := driver.Diagnose(limited, c.connector, report)
	if errors.Is(err, errors.ErrUnsupported) {
		err = diagnose.Run(limited, diagnose.Store{Connector: c.connector}, report)
	}
	if err != nil {
		return fmt.Errorf("dlock: diagnose: %w", c.closedOr(err))
	}
	return nil
}
