// The program changestore moves a lock from SQLite to PostgreSQL in three
// deployments of step 1, 2 and 3, without a time at which it has two holders.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/contrib/sqldriver/postgres"
	_ "github.com/dlock-go/dlock/contrib/sqldriver/sqlite"
)

// clients holds what one step of the change uses: old, then both, then new.
type clients struct{ old, new *dlock.Client }

// stamp is a token and the epoch of its store: 0 is old, 1 is new.
type stamp struct{ epoch, token int64 }

// withLock calls f with the lock of each store, old before new to prevent
// deadlocks.
func (c clients) withLock(ctx context.Context, name string, f func(ctx context.Context, stamps []stamp) error) (err error) {
	var stamps []stamp
	for epoch, client := range []*dlock.Client{c.old, c.new} {
		if client == nil {
			continue
		}
		lock, err := client.RWMutex(name).Lock(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, lock.Unlock()) }()
		ctx = lock.Context(ctx)
		stamps = append(stamps, stamp{int64(epoch), lock.Token()})
	}
	return f(ctx, stamps)
}

var errStale = errors.New("stale token: a later holder of the lock has written")

// pass returns the stamp to keep, or an error if the write is stale. The first
// holder in step 3 raises the epoch.
func pass(kept stamp, stamps []stamp) (stamp, error) {
	for _, s := range stamps {
		if s.epoch == kept.epoch && s.token >= kept.token {
			return s, nil
		}
		if s.epoch == kept.epoch {
			return kept, errStale
		}
	}
	if last := stamps[len(stamps)-1]; last.epoch > kept.epoch {
		return last, nil
	}
	return kept, errStale
}

func open(step int, oldDSN, newDSN string) (c clients, err error) {
	if step <= 2 {
		c.old, err = dlock.Open("sqlite", oldDSN)
	}
	if step >= 2 && err == nil {
		c.new, err = dlock.Open("postgres", newDSN)
	}
	return c, err
}

func (c clients) close() (err error) {
	for _, client := range []*dlock.Client{c.old, c.new} {
		if client != nil {
			err = errors.Join(err, client.Close())
		}
	}
	return err
}

func main() {
	step := flag.Int("step", 1, "1: lock in the old store, 2: in both, 3: in the new one")
	oldDSN := flag.String("old", "locks.db", "SQLite file")
	newDSN := flag.String("new", "", "URL of PostgreSQL")
	flag.Parse()
	c, err := open(*step, *oldDSN, *newDSN)
	if err != nil {
		log.Fatal(err)
	}
	defer c.close()
	err = c.withLock(context.Background(), "stock/42", func(ctx context.Context, stamps []stamp) error {
		fmt.Println("holding", len(stamps))
		return ctx.Err()
	})
	if err != nil {
		log.Fatal(err)
	}
}
