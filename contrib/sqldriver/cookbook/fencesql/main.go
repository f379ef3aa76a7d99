// The program fencesql withdraws money from an account in a SQL database, which
// refuses the write if a later holder of the lock has already written. The
// tables are in schema.sql.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"github.com/dlock-go/dlock"
	_ "github.com/dlock-go/dlock/contrib/sqldriver/sqlite"
)

// epoch must be raised when the lock moves to a store whose tokens may be
// smaller.
const epoch = 0

// A fence holds the SQL statements that compare and store tokens.
type fence struct{ read, raise string }

var (
	postgres = fence{
		"SELECT epoch, token FROM fence WHERE resource = $1 FOR UPDATE",
		"UPDATE fence SET epoch = $1, token = $2 WHERE resource = $3",
	}
	mysql = fence{
		"SELECT epoch, token FROM fence WHERE resource = ? FOR UPDATE",
		"UPDATE fence SET epoch = ?, token = ? WHERE resource = ?",
	}
	sqlite = fence{ // for transactions that begin with BEGIN IMMEDIATE
		"SELECT epoch, token FROM fence WHERE resource = ?",
		"UPDATE fence SET epoch = ?, token = ? WHERE resource = ?",
	}
)

var errStale = errors.New("stale token: a later holder of the lock has written")

// pass refuses a token that is lower than an earlier one. It must be the first
// step of the transaction; after an error, roll back. The row stays locked
// until the transaction ends, so no other holder gets past it.
func (f fence) pass(ctx context.Context, tx *sql.Tx, resource string, token int64) error {
	var e, t int64
	if err := tx.QueryRowContext(ctx, f.read, resource).Scan(&e, &t); err != nil {
		return fmt.Errorf("fence of %s: %w", resource, err)
	}
	if epoch < e || epoch == e && token < t {
		return errStale
	}
	_, err := tx.ExecContext(ctx, f.raise, epoch, token, resource) // even if equal
	return err
}

func (f fence) withdraw(ctx context.Context, tx *sql.Tx, token int64) error {
	if err := f.pass(ctx, tx, "account/7", token); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance - 10 WHERE id = 7")
	return err
}

func run(ctx context.Context, client *dlock.Client, db *sql.DB, f fence) error {
	return client.RWMutex("account/7").WithLock(ctx, func(ctx context.Context) error {
		tx, err := db.BeginTx(ctx, nil) // rolled back if the lock is lost
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if err := f.withdraw(ctx, tx, dlock.FromContext(ctx).Token()); err != nil {
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
	if err := run(context.Background(), client, db, sqlite); err != nil {
		log.Fatal(err)
	}
}
