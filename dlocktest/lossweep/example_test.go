package lossweep_test

import (
	"context"
	"errors"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/dlocktest/lossweep"
)

// database stores the rows of the program under test. A real database refuses
// outdated tokens.
type database interface {
	Save(ctx context.Context, row string, token int64) error
}

// ship is the function under test. It sends its lock's token with each write.
func ship(ctx context.Context, client *dlock.Client, db database) (err error) {
	lock, err := client.RWMutex("stock/42").Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	ctx = lock.Context(ctx)
	for _, row := range []string{"stock", "order", "invoice"} {
		if err := db.Save(ctx, row, lock.Token()); err != nil {
			return err
		}
	}
	return nil
}

// fakeDB reports each write to the sweep instead of storing it.
type fakeDB struct{ *lossweep.Sweep }

func (db fakeDB) Save(ctx context.Context, row string, token int64) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return db.WriteToken(token, row)
}

func TestShipLosesItsLock(t *testing.T) {
	lossweep.Run(t, func(t *testing.T, s *lossweep.Sweep) error {
		return ship(t.Context(), s.Client(), fakeDB{s})
	})
}

// This is what the test of a function that takes a lock looks like. The file of
// this example also defines ship and fakeDB, and runs them in
// TestShipLosesItsLock.
func Example() {
	testShip := func(t *testing.T) { // a real test would call this TestShip
		lossweep.Run(t, func(t *testing.T, s *lossweep.Sweep) error {
			return ship(t.Context(), s.Client(), fakeDB{s})
		})
	}
	_ = testShip
}
