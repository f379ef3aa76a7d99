package hooks_test

import (
	"context"
	"testing"
	"time"

	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/dlocktest/hooks"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

const timeout = time.Second

// connector is what OpenConnector of your driver returns.
type connector struct{}

func (connector) newStore() session.Store { return nil }

// faulty is your connector, with faults between its sessions and the store.
type faulty struct{ connector }

func (c faulty) Connect(ctx context.Context) (driver.Session, error) {
	return session.Connect(ctx, hooks.Wrap(c.newStore()), session.Config{Name: "yours", Timeout: timeout})
}

// This is the conformance test of a driver that has no connections of its own
// to break. The hooks that are left say how an operator changes the store.
func Example() {
	testConformance := func(t *testing.T) { // TestConformance in a real test
		config := dlocktest.Config{
			New:            func(*testing.T) driver.Connector { return faulty{} },
			SessionTimeout: timeout,
		}
		hooks.Set(&config, nil, nil)
		dlocktest.Run(t, config)
	}
	_ = testConformance
}
