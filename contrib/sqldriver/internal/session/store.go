// Package session is the database-independent part of a driver for a database
// server: the lease, calls in flight, watches, and the handling of unknown
// outcomes. A [Store] runs the statements. The drivers for PostgreSQL and MySQL
// use this package. The SQLite driver does not, because no network loses the
// replies of its database.
package session

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Store runs the statements of one session. Each method is one transaction, in
// one round trip where the database can do that. All methods are safe for
// concurrent use and return when ctx ends.
//
// An error that may be temporary matches driver.ErrUnavailable. An error
// matches [ErrRefused] only if the transaction has changed nothing and never
// will; after any other error the outcome is unknown. If the session is not in
// the database, all methods but Begin and End return [ErrUnknownSession].
type Store interface {
	// Open connects, and creates the tables if they are missing.
	Open(ctx context.Context) error
	// Begin adds the session to the database. Its deadline is one timeout from
	// now by the clock of the database. If the database is new or has lost
	// data, Begin may instead return a time to wait before the next call.
	Begin(ctx context.Context, id string, timeout time.Duration) (Begun, error)
	// Beat moves the deadline of the session to one timeout from now, without
	// waiting for other changes. It returns the time until the earliest
	// deadline of any session.
	Beat(ctx context.Context, id string) (untilExpiry time.Duration, err error)
	// Expire ends one session whose deadline has passed, and reports whether
	// there was one. It skips sessions with rows locked by another transaction
	// and leaves them to a later call.
	Expire(ctx context.Context) (ended bool, err error)
	// Tidy removes a batch of rows of unused queues, and reports whether there
	// may be more. It does not wait for row locks of other transactions.
	Tidy(ctx context.Context) (more bool, err error)
	// End removes the session and its nodes. The database then refuses every
	// other change of the session. It is a no-op if the session is not in the
	// database.
	End(ctx context.Context, id string) error

	// Enter waits until the store has a spare connection for a caller's
	// request. leave gives the connection back. Heartbeats and other background
	// requests don't call Enter, because they share a reserve of connections.
	Enter(ctx context.Context) (leave func(), err error)
	// Create appends a node and returns the nodes of the queue right after
	// that.
	Create(ctx context.Context, op Op, queue, prefix string, data []byte) (token int64, nodes []Row, err error)
	// Delete removes the session's node with the given token. If there is none,
	// the error matches driver.ErrGone.
	Delete(ctx context.Context, op Op, queue string, token int64, why driver.Cause) error
	// Replace changes the prefix of the session's node with the given token.
	Replace(ctx context.Context, op Op, queue string, token int64, prefix string) error
	// Remove removes the node with this name and token, even if it belongs to
	// another session. If there is no such node, the error matches
	// driver.ErrGone.
	Remove(ctx context.Context, op Op, queue, name string, token int64) error
	// SetValue stores the value of the queue if the session's node with the given
	// token is in the queue. Otherwise the error matches driver.ErrGone. If the
	// stored value has a greater token, the error matches driver.ErrStale.
	SetValue(ctx context.Context, op Op, queue string, token int64, value []byte) error
	// Cancel removes the session's nodes with these data, and raises the
	// session's generation to that of op. It waits for changes that are
	// running, so that it also removes the nodes that they make. The database
	// then refuses changes of a lower generation with [ErrStale].
	Cancel(ctx context.Context, op Op, data []byte) error

	// List returns the nodes of a queue in any order.
	List(ctx context.Context, id, queue string) ([]Row, error)
	// Look reads the nodes and versions of queues atomically. It may omit the
	// nodes of a queue whose version equals the known one. A version is never
	// zero, and never recurs after a change of the queue.
	Look(ctx context.Context, id string, known map[string]int64) (map[string]Snapshot, error)
	// Read returns the details of a node.
	Read(ctx context.Context, id, queue, name string) (driver.NodeInfo, error)
	// Value returns the value of the queue and the token with which it was
	// stored, which is zero if there is no value.
	Value(ctx context.Context, id, queue string) (value []byte, token int64, err error)
	// Walk returns the names of all non-empty queues at and below prefix.
	Walk(ctx context.Context, id, prefix string) ([]string, error)

	// CloseSilent closes idle connections that do not reply before ctx ends.
	CloseSilent(ctx context.Context)
	// Server returns the address of the database, without secrets.
	Server() string
	// Close closes the connections. No other method may be running or be called
	// later.
	Close() error
}

// Listener is a Store whose database sends notices of removed nodes.
type Listener interface {
	// Listen subscribes to notices of the queue. After it has returned, the
	// store calls gone, set by Notify, for each later removal. The returned
	// line number stays the same until notices may have been lost. It is zero,
	// or Listen returns an error, if the store can't send notices at present.
	Listen(ctx context.Context, queue string) (line uint64, err error)
	// Line returns what Listen would return now, without waiting, or zero if
	// Listen would need a request.
	Line(queue string) uint64
	// Notify sets the callbacks and must be called first. The store calls gone
	// for each removed node, in commit order. If notices may have been lost,
	// the store calls renewed before it passes on notices with a new line
	// number. When notices cease, Line first returns zero, and then the store
	// calls lost. Calls of gone and renewed are never concurrent.
	Notify(gone func(queue, name string, why driver.Cause), renewed, lost func())
}

// Begun is the result of [Store.Begin].
type Begun struct {
	Wait       time.Duration // time until the next call; zero if the session has begun
	Rest       time.Duration // total time until a session can begin
	Generation string
	Grace      time.Duration // longest grace of all clients
}

// Op identifies the session that makes a change, and the generation of the
// change. See [Store.Cancel].
type Op struct {
	Session    string
	Generation int64
}

// Row is a node in the database. Token is zero for nodes of other sessions.
type Row struct {
	Name    string
	Token   int64
	Created int64 // in microseconds since 1970; set by Create for its own node only
}

// Snapshot is the state of a queue at one moment.
type Snapshot struct {
	Version int64
	Nodes   []Row
	// Same is true if the caller of Look knows this version. Nodes and Released
	// may then be empty.
	Same bool
	// Released is the latest node whose holder has released an exclusive lock.
	// It is empty if unknown, and always in stores with notices.
	Released string
}
