package fence

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Table is a table of a SQL database that keeps the greatest token of each
// resource. It is tested with PostgreSQL, MariaDB and SQLite. The table is
// created by
//
//	CREATE TABLE dlock_fence (resource VARCHAR(512) PRIMARY KEY,
//		epoch BIGINT NOT NULL, token BIGINT NOT NULL, checks BIGINT NOT NULL)
//
// MySQL and MariaDB must use InnoDB, because an engine without transactions
// would let late writes pass:
//
//	CREATE TABLE dlock_fence (resource VARBINARY(512) PRIMARY KEY,
//		epoch BIGINT NOT NULL, token BIGINT NOT NULL, checks BIGINT NOT NULL) ENGINE=InnoDB
//
// The zero value is the table dlock_fence with placeholders ?. A Table is safe
// for concurrent use.
type Table struct {
	// Name is the name of the table, optionally qualified by a schema, in ASCII
	// letters, digits and underscores. Empty means dlock_fence.
	Name string
	// Dollar selects the placeholders of PostgreSQL, $1 instead of ?.
	Dollar bool
	// Epoch is compared before the token. Raise it in the settings of all
	// programs when new tokens may be smaller than old ones, because the store
	// of the locks was restored, emptied or replaced.
	Epoch int64
}

// Tx is a transaction: a *sql.Tx, or the transaction of a library built on
// database/sql. A *sql.DB does not implement Tx, because a token protects
// nothing unless it is compared in the transaction that writes.
type Tx interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	Commit() error
	Rollback() error
}

// Add adds the row of a resource if it is missing. Call it before the first
// Raise or Check, for example where the resource itself is created. Never
// delete the row, or a late writer could pass.
//
// The error matches [ErrInvalid] if the database confuses the resource with
// another one, for example because the column ignores case.
func (t Table) Add(ctx context.Context, db *sql.DB, resource string) error {
	if err := errors.Join(t.valid(), checkResource(resource)); err != nil {
		return err
	}
	_, _, err := t.read(ctx, db, resource, "")
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	_, err = db.ExecContext(ctx, t.sql("INSERT INTO % (resource, epoch, token, checks) VALUES (?, 0, 0, 0)"), resource)
	if _, _, again := t.read(ctx, db, resource, ""); again == nil {
		return nil // added by another call meanwhile
	} else if err == nil {
		err = again
	}
	return explain(err, "add", resource)
}

// Raise records the token of a writer, or returns an error that matches
// [ErrStale] if a greater token is already recorded. The resource's row stays
// locked until the transaction ends, so the calls of other holders wait.
//
// Call Raise before the transaction reads or writes anything else, and roll back
// after any error. Repeat a transaction that the database asks to repeat:
// PostgreSQL with SQLSTATE 40001 or 40P01, MySQL and MariaDB with error 1020,
// 1205 or 1213. On SQLite, begin transactions with BEGIN IMMEDIATE.
//
// The error matches [ErrInvalid] if the database does not store the token,
// because of a trigger, a rule or row-level security.
//
// Without the resource's row, the error matches [sql.ErrNoRows]: see [Table.Add].
func (t Table) Raise(ctx context.Context, tx Tx, resource string, token int64) error {
	if err := errors.Join(t.valid(), check(resource, token)); err != nil {
		return err
	}
	// MySQL counts only rows that get a new value, so each call increments the
	// column checks.
	result, err := tx.ExecContext(ctx, t.sql(`UPDATE % SET
		token = CASE WHEN epoch < ? OR epoch = ? AND token < ? THEN ? ELSE token END,
		epoch = CASE WHEN epoch < ? THEN ? ELSE epoch END,
		checks = checks + 1
		WHERE resource = ?`), t.Epoch, t.Epoch, token, token, t.Epoch, t.Epoch, resource)
	var changed int64
	if err == nil {
		changed, err = result.RowsAffected()
	}
	if err != nil {
		return explain(err, "raise", resource)
	}
	epoch, kept, err := t.compare(ctx, tx, resource, token)
	if err == nil && (changed != 1 || epoch != t.Epoch || kept != token) {
		err = fmt.Errorf("%w: token %d of %q was not kept: the UPDATE of table %s has no effect, perhaps because of a trigger, a rule or row-level security",
			ErrInvalid, token, resource, t.name())
	}
	return err
}

// Check compares the token of a reader, but does not record it. Its error
// matches [ErrStale] if a later writer has committed. On MySQL and MariaDB, it
// takes a shared lock on the resource's row, and the database may ask to repeat
// the transaction, as with Raise. Other databases lock nothing.
//
// Call Check after the last read of the transaction: nil then means that
// nothing that was read comes from a later writer.
func (t Table) Check(ctx context.Context, tx Tx, resource string, token int64) error {
	if err := errors.Join(t.valid(), check(resource, token)); err != nil {
		return err
	}
	_, _, err := t.compare(ctx, tx, resource, token)
	return err
}

// latest makes MySQL and MariaDB read the latest committed row, which may be
// newer than the transaction's snapshot. Other databases see a comment.
const latest = " /*! LOCK IN SHARE MODE */"

// compare returns the recorded epoch and token, and an error if token is stale.
func (t Table) compare(ctx context.Context, tx Tx, resource string, token int64) (epoch, kept int64, err error) {
	epoch, kept, err = t.read(ctx, tx, resource, latest)
	switch {
	case err != nil:
	case epoch > t.Epoch:
		err = fmt.Errorf("%w: %q has seen epoch %d, which is greater than %d", ErrStale, resource, epoch, t.Epoch)
	case epoch == t.Epoch && kept > token:
		err = staleError(resource, token, kept)
	}
	return epoch, kept, err
}

// RaiseAll is like Raise, but for a lock in a majority of stores. The argument
// tokens has one token per store, always in the same order, and 0 for a store
// in which the lock is not held. Each store has its own row, named by [Part]
// and added with [Table.Add]. The error matches [ErrStale] if any token is
// stale.
func (t Table) RaiseAll(ctx context.Context, tx Tx, resource string, tokens []int64) error {
	if err := checkMajority(resource, tokens); err != nil {
		return err
	}
	for i, token := range tokens {
		if token == 0 {
			continue
		}
		if err := t.Raise(ctx, tx, Part(resource, i), token); err != nil {
			return err
		}
	}
	return nil
}

func checkMajority(resource string, tokens []int64) error {
	held := 0
	for i, token := range tokens {
		if token == 0 {
			continue
		}
		held++
		if err := check(Part(resource, i), token); err != nil {
			return err
		}
	}
	if 2*held <= len(tokens) {
		return fmt.Errorf("%w: %d tokens of %d stores are no majority", ErrInvalid, held, len(tokens))
	}
	return nil
}

// Part returns the name under which a resource's token for the store with index
// i is recorded, such as "account/7#0".
func Part(resource string, i int) string { return resource + "#" + strconv.Itoa(i) }

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (t Table) read(ctx context.Context, q querier, resource, how string) (epoch, token int64, err error) {
	var found string
	err = q.QueryRowContext(ctx, t.sql("SELECT resource, epoch, token FROM % WHERE resource = ?")+how, resource).Scan(&found, &epoch, &token)
	switch {
	case err != nil:
		err = explain(err, "read", resource)
	case found != resource:
		err = fmt.Errorf("%w: the database takes resource %q for %q: give the column a binary collation, or VARBINARY on MySQL",
			ErrInvalid, resource, found)
	}
	return epoch, token, err
}

func explain(err error, verb, resource string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("fence: %q has no row (use Table.Add): %w", resource, err)
	}
	return fmt.Errorf("fence: %s %q: %w", verb, resource, err)
}

var tableName = regexp.MustCompile(`^([A-Za-z_]\w{0,62}\.)?[A-Za-z_]\w{0,62}$`)

func (t Table) name() string { return cmp.Or(t.Name, "dlock_fence") }

func (t Table) valid() error {
	switch {
	case !tableName.MatchString(t.name()):
		return fmt.Errorf("%w: %q is not the name of a table (ASCII letters, digits, underscores, one dot after a schema)", ErrInvalid, t.Name)
	case t.Epoch < 0:
		return fmt.Errorf("%w: epoch %d is below zero", ErrInvalid, t.Epoch)
	}
	return nil
}

// sql replaces % by the table's name and, with Dollar, each ? by $1, $2, ...
func (t Table) sql(statement string) string {
	statement = strings.Replace(statement, "%", t.name(), 1)
	if !t.Dollar {
		return statement
	}
	parts := strings.Split(statement, "?")
	for i := range parts[1:] {
		parts[i] += "$" + strconv.Itoa(i+1)
	}
	return strings.Join(parts, "")
}
