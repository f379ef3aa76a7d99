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

// connector is the type that your driver's OpenConnector returns.
type connector struct{}

func (connector) newStore() session.Store { return nil }

// faulty is your connector, but faults can be injected into its sessions.
type faulty struct{ connector }

func (c faulty) Connect(ctx context.Context) (driver.Session, error) {
	return session.Connect(ctx, hooks.Wrap(c.newStore()), session.Config{Name: "yours", Timeout: timeout})
}

// This is the conformance test of a driver without connections of its own.
// Other drivers pass a function to Set that returns the Network of a session. A
// real test also sets hooks that change the store, like RemoveNode.
func Example() {
	testConformance := func(t *testing.T) { // a real test would call this TestConformance
		config := dlocktest.Config{
			New:            func(*testing.T) driver.Connector { return faulty{} },
			SessionTimeout: timeout,
		}
		hooks.Set(&config, nil, nil)
		dlocktest.Run(t, config)
	}
	_ = testConformance
}
