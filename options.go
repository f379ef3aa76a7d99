package dlock

import (
	"log/slog"
	"time"

	"github.com/dlock-go/dlock/recipes"
)

// Option is a setting for [Open], [NewClient] or Client.RWMutex.
type Option = recipes.Option

// WithTimeout limits how long Lock and RLock wait if ctx has no earlier
// deadline. When that time has passed, they return an error that matches
// [ErrTimeout]. It does not limit how long a lock is held. The requests of TryLock
// and TryRLock to the store may take that long, too. Zero or less means no limit,
// which is the default. See [recipes.WithTimeout].
func WithTimeout(d time.Duration) Option { return recipes.WithTimeout(d) }

// WithBackOff sets how requests are retried after errors of the store that may
// pass. Each call that meets such an error gets a [BackOff] of its own from
// newBackOff, which may be called by many goroutines at once. By default, or if
// newBackOff is nil, the pauses grow from 20 ms to 2 s, and a call gives up
// when the store has failed for a minute. See [recipes.WithBackOff].
func WithBackOff(newBackOff func() BackOff) Option { return recipes.WithBackOff(newBackOff) }

// BackOff is how long to wait before the next try. The types of
// github.com/cenkalti/backoff implement it:
//
//	type BackOff interface {
//		NextBackOff() time.Duration // the next pause; less than 0: give up
//		Reset()                     // begin anew, after a success
//	}
type BackOff = recipes.BackOff

// WithHostname sets what the names of nodes begin with, instead of the host
// name of the system. The name is for people who look at a queue. Two hosts may
// have the same name. See [recipes.WithHostname].
func WithHostname(name string) Option { return recipes.WithHostname(name) }

// WithLogger sets where to log what an operator should know: sessions that begin
// and end, retries, losses, nodes that could not be removed at once. By default,
// or if l is nil, nothing is logged.
func WithLogger(l *slog.Logger) Option { return recipes.WithLogger(l) }

// WithData adds data to the [Record] that the lock's nodes carry, at most
// 65,536 bytes. If the data is longer, every use of the lock returns an error.
func WithData(data []byte) Option { return recipes.WithData(data) }

// WithRetention lets the goroutines of one client share one node in the queue
// of a lock. The client keeps the node for a short time after Unlock. If no
// other client waits, the next goroutine gets the lock without a request to the
// store. This is for locks that one process takes again and again. Locks on one
// node have the same token. See [recipes.WithRetention].
func WithRetention(r Retention) Option { return recipes.WithRetention(r) }

// WithoutRetention undoes [WithRetention] for one lock of a client that has it
// as an option of all locks.
func WithoutRetention() Option { return recipes.WithoutRetention() }

// Retention limits how long a client keeps a node of [WithRetention]:
//
//	type Retention struct {
//		Idle  time.Duration // how long after the last Unlock (100 ms)
//		Turns int           // for how many turns while another client waits (64)
//	}
//
// A turn is the time in which one goroutine holds the lock exclusively, or in
// which goroutines hold it shared without a gap. A field of zero or less means
// the default in brackets. See [recipes.Retention].
type Retention = recipes.Retention

// WithWait sets how a contender waits for other contenders: [WatchPredecessor],
// [WatchQueue] or [Poll].
func WithWait(w Wait) Option { return recipes.WithWait(w) }

// Wait is a way of waiting for other contenders. The zero Wait is
// [WatchPredecessor].
//
//	func (w Wait) String() string
type Wait = recipes.Wait

// WatchPredecessor returns the default Wait: a contender watches its
// predecessor. A release then wakes only the contenders to which it grants the
// lock.
func WatchPredecessor() Wait { return recipes.WatchPredecessor() }

// WatchQueue returns the Wait by which a contender watches the whole queue. Each
// change then wakes every waiter, and every waiter lists the queue.
func WatchQueue() Wait { return recipes.WatchQueue() }

// Poll returns the Wait by which a contender lists the queue again and again,
// after a pause of d on average. Poll is for stores and firewalls that cannot
// keep a watch. If d is zero or less, it means 100 ms.
func Poll(d time.Duration) Wait { return recipes.Poll(d) }
