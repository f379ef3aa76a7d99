// Package session is the part of a driver for a database server that does not depend
// on the database: the lease, the calls in flight, the watches, and what the driver
// does when it does not know the outcome of a statement. A [Store] does what depends
// on the database. The drivers for PostgreSQL and MySQL use this package. The SQLite
// driver does not, because no network loses the answers of its database.
package session

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Store runs the statements of one session. Each method is one transaction, and
// one round trip where the database can do that. All methods are safe for many
// goroutines and return when ctx ends.
//
// An error that may pass by itself matches driver.ErrUnavailable. An error matches
// [ErrRefused] only if the transaction surely changed nothing and never will. After
// any other error the outcome is unknown. A method that finds no row of the session
// returns [ErrUnknownSession], except Begin and End.
type Store interface {
	// Open connects, and creates the tables if they are missing.
	Open(ctx context.Context) error
	// Begin adds the row of the session, with a deadline that is one timeout from
	// now by the clock of the database.
	Begin(ctx context.Context, id string, timeout time.Duration) error
	// Beat moves the deadline of the session to one timeout from now. It must not
	// wait for other changes. It returns the time until the earliest deadline of
	// any session.
	Beat(ctx context.Context, id string) (untilExpiry time.Duration, err error)
	// Expire ends one session whose deadline has passed, and reports whether it
	// has done so. If another transaction has locked rows of a session, Expire
	// passes over that session, and leaves all of it to a later call.
	Expire(ctx context.Context) (ended bool, err error)
	// Tidy removes rows that are left of queues that are not in use any more, and
	// reports whether there may be more of them. It does not wait for row locks of
	// other transactions.
	Tidy(ctx context.Context) (more bool, err error)
	// End removes the session and its nodes. After that the database refuses every
	// other change of the session. Without a row of the session it does nothing.
	End(ctx context.Context, id string) error

	// Enter waits until the store has a connection to spare for the request of a call.
	// The caller calls leave after the request. Heartbeats, the looks of the session
	// itself, notices, Expire and Cancel do without: they share the last connections.
	Enter(ctx context.Context) (leave func(), err error)
	// Create appends a node. It returns the nodes of the queue right after that.
	Create(ctx context.Context, op Op, queue, prefix string, data []byte) (token int64, nodes []Row, err error)
	// Delete removes the node of the session with that token. If there is none, the
	// error matches driver.ErrGone.
	Delete(ctx context.Context, op Op, queue string, token int64, why driver.Cause) error
	// Replace gives the node of the session with that token another prefix.
	Replace(ctx context.Context, op Op, queue string, token int64, prefix string) error
	// Cancel removes the nodes of the session with these data. It raises the
	// generation of the session in the database to that of op. Cancel waits for
	// changes that are running, so that it also removes the nodes that they make.
	// After Cancel, the database refuses changes with a lower generation, with
	// [ErrStale].
	Cancel(ctx context.Context, op Op, data []byte) error

	// List returns the nodes of a queue in any order.
	List(ctx context.Context, id, queue string) ([]Row, error)
	// Look returns, at one instant, the nodes and the versions of queues. It may
	// leave out the nodes of a queue whose version is still that in the argument
	// known. A version is never zero, and never the same after a change of the
	// queue.
	Look(ctx context.Context, id string, known map[string]int64) (map[string]Snapshot, error)
	// Read returns the facts about a node.
	Read(ctx context.Context, id, queue, name string) (driver.NodeInfo, error)
	// Walk returns the names of queues with nodes at a prefix and below it.
	Walk(ctx context.Context, id, prefix string) ([]string, error)

	// CloseSilent closes the idle connections that do not answer before ctx ends.
	CloseSilent(ctx context.Context)
	// Server returns the address of the database, without any secret.
	Server() string
	// Close frees the connections. No other method runs or is called after that.
	Close() error
}

// Listener is a Store whose database sends notices of nodes that have gone.
type Listener interface {
	// Listen asks the database for notices of the queue. When Listen has returned,
	// the store calls the function gone, which Notify has set, for each later
	// removal of a node. The result line is a number that stays the same until
	// notices may have been lost. It is zero, or Listen returns an error, if the
	// store cannot send notices at present.
	Listen(ctx context.Context, queue string) (line uint64, err error)
	// Line returns the number that Listen would return now, without waiting, and
	// zero if Listen would have to ask the database.
	Line(queue string) uint64
	// Notify sets the functions for notices before any other call. The store calls
	// gone for each node, in the order of the changes. If notices may have been
	// lost, the notices after that have another line number, and the store calls
	// renewed before it calls gone with the first of them. It never calls gone and
	// renewed at the same time. The store calls lost when notices do not arrive any
	// more, and Line returns zero by then.
	Notify(gone func(queue, name string, why driver.Cause), renewed, lost func())
}

// Op says which session makes a change, and with which generation: see
// Store.Cancel.
type Op struct {
	Session    string
	Generation int64
}

// Row is a node in the database. The token of a node of another session is zero.
type Row struct {
	Name  string
	Token int64
}

// Snapshot is the state of a queue at an instant.
type Snapshot struct {
	Version int64
	Nodes   []Row
	Same    bool // the caller of Look knows this version, and need not read the rest
	// Released is the name of the last node whose holder has released an
	// exclusive lock. It is empty if the store does not know it. A store with
	// notices leaves it empty.
	Released string
}
