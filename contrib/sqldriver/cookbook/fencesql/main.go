// The program fencesql withdraws money from an account in a SQL database, which
// refuses the write if a later holder of the lock has already written. The
// tables are in schema.sql.
package main

import (
	"context"
	"database/sql"
	"log"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/contrib/sqldriver/sqlite"
	"github.com/dlock-go/dlock/fence"
)

// tokens keeps the greatest token of each resource. Set Dollar for PostgreSQL.
// Raise Epoch when the lock moves to another store.
var tokens = fence.Table{Name: "dlock_fence", Dollar: false, Epoch: 0}

const account = "account/7"

// withdraw runs in a transaction, which is rolled back after an error.
func withdraw(ctx context.Context, tx *sql.Tx, token int64) error {
	if err := tokens.Raise(ctx, tx, account, token); err != nil {
		return err // matches fence.ErrStale if a later holder has written
	}
	_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance - 10 WHERE id = 7")
	return err
}

func run(ctx context.Context, client *dlock.Client, db *sql.DB) error {
	if err := tokens.Add(ctx, db, account); err != nil {
		return err
	}
	return client.RWMutex(account).WithLock(ctx, func(ctx context.Context, lock *dlock.Lock) error {
		tx, err := db.BeginTx(ctx, nil) // rolled back if the lock is lost
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := withdraw(ctx, tx, lock.Token()); err != nil {
			return err
		}
		return tx.Commit()
	})
}

func main() {
	client, err := dlock.Open("sqlite", "locks.db")
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	db, err := sql.Open("sqlite", "shop.db?_txlock=immediate&_pragma=busy_timeout(10000)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if err := run(context.Background(), client, db); err != nil {
		log.Fatal(err)
	}
}
