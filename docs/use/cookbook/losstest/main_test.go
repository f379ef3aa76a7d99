package main

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/dlocktest/lossweep"
	"github.com/dlock-go/dlock/internal/leakcheck"
	"github.com/dlock-go/dlock/memdriver"
)

func TestMain(m *testing.M) { os.Exit(leakcheck.After(m.Run())) }

func Example() {
	main()
	// Output:
	// paid A
	// paid B
	// paid C
}

type fakeBank struct{ pay func(invoice string) }

func (fakeBank) Open(context.Context) ([]string, error) { return []string{"A", "B", "C"}, nil }

func (b fakeBank) Pay(ctx context.Context, invoice string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	b.pay(invoice)
	return nil
}

// lossweep runs payAll many times, and each time loses the lock at a different
// step.
func TestPayAllStopsWhenItsLockIsLost(t *testing.T) {
	lossweep.Run(t, func(t *testing.T, s *lossweep.Sweep) error {
		return payAll(t.Context(), s.Client(), fakeBank{s.Write})
	})
}

// A test can also lose the lock at a single point of the code.
func TestPayAllStopsAfterTheInvoiceThatItWasPaying(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		client := dlock.NewClient(store)
		defer client.Close()
		var paid []string
		err := payAll(t.Context(), client, fakeBank{func(invoice string) {
			paid = append(paid, invoice)
			store.Faults().PauseAll(time.Minute)
		}})
		require.ErrorIs(t, err, dlock.ErrLost)
		assert.Equal(t, []string{"A"}, paid)
	})
}

// In virtual time, long waits take no real time.
func TestPayAllWaitsForAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		one, two := dlock.NewClient(store), dlock.NewClient(store)
		defer one.Close()
		defer two.Close()
		lock, err := one.RWMutex("invoices").Lock(t.Context())
		require.NoError(t, err)
		time.AfterFunc(time.Hour, func() { assert.NoError(t, lock.Unlock()) })
		began := time.Now()
		require.NoError(t, payAll(t.Context(), two, fakeBank{func(string) {}}))
		assert.Equal(t, time.Hour, time.Since(began))
	})
}

// careless is a faulty payAll: after a pause, its ctx ends too late.
func careless(ctx context.Context, client *dlock.Client, b bank) error {
	return client.RWMutex("invoices").WithLock(ctx, func(ctx context.Context, _ *dlock.Lock) error {
		invoices, err := b.Open(ctx)
		for _, invoice := range invoices {
			if err == nil {
				err = b.Pay(ctx, invoice)
			}
		}
		return err
	})
}

const carelessVariable = "DLOCK_COOKBOOK_CARELESS"

// The sweep runs in a child process, because this test passes if the sweep
// fails.
func TestTheFaultIsFound(t *testing.T) {
	if os.Getenv(carelessVariable) != "" {
		lossweep.Run(t, func(t *testing.T, s *lossweep.Sweep) error {
			return careless(t.Context(), s.Client(), fakeBank{s.Write})
		})
		return
	}
	test := exec.Command(os.Args[0], "-test.run=^TestTheFaultIsFound$")
	test.Env = append(os.Environ(), carelessVariable+"=1")
	out, err := test.CombinedOutput()
	assert.Error(t, err)
	assert.Contains(t, string(out), `--- FAIL: TestTheFaultIsFound/paused-at-write-1`)
	assert.Regexp(t, `write 2, "B", was made while no lock was held \(main_test\.go:\d+`, string(out))
	assert.NotContains(t, string(out), `--- FAIL: TestTheFaultIsFound/expired`, "there the context is enough")
}
