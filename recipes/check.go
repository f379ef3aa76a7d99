package recipes

import (
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/driver"
)

// Check asks the driver for settings of the store's server, missing rights and
// the like that may break locks or weaken their guarantees: see
// [driver.Checker]. It uses neither the client's session nor its locks, so it
// also works if [Client.Ping] fails. It may begin a session of its own, so call
// it when a service starts, or in a health check that runs rarely.
//
// The findings may be incomplete if the error is not nil. It matches
// [errors.ErrUnsupported] if the driver checks nothing, and [ErrClosed] if the
// client is closed. Close waits for Check, and ends it.
func (c *Client) Check(ctx context.Context) ([]driver.Finding, error) {
	if ctx == nil {
		return nil, errors.New("dlock: check: nil context")
	}
	if err := c.beginCall(); err != nil {
		return nil, fmt.Errorf("dlock: check: %w", err)
	}
	defer c.endCall()
	checker, ok := c.connector.(driver.Checker)
	if !ok {
		return nil, fmt.Errorf("dlock: check: %w", errors.ErrUnsupported)
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
	found, err := checker.Check(limited)
	if err != nil {
		err = fmt.Errorf("dlock: check: %w", c.closedOr(err))
	}
	return found, err
}
