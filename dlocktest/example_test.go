package dlocktest_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock/dlocktest"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memdriver"
)

// This is what the conformance test of a driver looks like. New returns a new
// store for each case. Without hooks to inject faults, Run reports which rules
// it could not check.
func ExampleRun() {
	testConformance := func(t *testing.T) { // a real test would call this TestConformance
		dlocktest.Run(t, dlocktest.Config{
			New: func(*testing.T) driver.Connector {
				return memdriver.New(memdriver.WithSessionTimeout(time.Second))
			},
			SessionTimeout: time.Second,
		})
	}
	_ = testConformance
}

// Advancing the clocks of a lease simulates a pause of the process.
func ExampleSkewLease() {
	lease := driver.NewLease(10*time.Second, 0)
	defer lease.End(nil)
	_ = lease.Do(func() error { return nil })
	fmt.Println("before the pause:", lease.Err())

	dlocktest.SkewLease(lease, time.Minute)
	fmt.Println("after the pause:", errors.Is(lease.Err(), driver.ErrSessionEnded))
	// Output:
	// before the pause: <nil>
	// after the pause: true
}
