package dlock

import (
	"context"
	"log/slog"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes"
)

// The names that applications need most from the packages below. The hooks' arguments are in
// package recipes.
type (
	// Client is a client of one store; see [recipes.Client].
	Client = recipes.Client
	// RWMutex is a read-write lock; see [recipes.RWMutex].
	RWMutex = recipes.RWMutex
	// Lock is a lock that is held; see [recipes.Lock].
	Lock = recipes.Lock
	// Mode is Shared or Exclusive.
	Mode = recipes.Mode
	// Option is a setting of a client or a lock.
	Option = recipes.Option
	// BackOff paces retries; see [recipes.BackOff].
	BackOff = recipes.BackOff
	// Trace is a set of hooks; see [recipes.Trace].
	Trace = recipes.Trace
	// Wait is a way of waiting; see [recipes.Wait].
	Wait = recipes.Wait
	// Contender is a member of a lock's queue; see [recipes.Contender].
	Contender = recipes.Contender
)

// WithoutReentry returns a context with which no lock is entered again; see
// [recipes.WithoutReentry].
func WithoutReentry(ctx context.Context) context.Context { return recipes.WithoutReentry(ctx) }

// ParseMode returns the mode whose String is given; see [recipes.ParseMode].
func ParseMode(s string) (Mode, error) { return recipes.ParseMode(s) }

// The modes of a lock.
const (
	Shared    = recipes.Shared
	Exclusive = recipes.Exclusive
)

// Errors to match with errors.Is; see package recipes for what each one says.
var (
	ErrLocked      = recipes.ErrLocked
	ErrTimeout     = recipes.ErrTimeout // also matches context.DeadlineExceeded
	ErrLost        = recipes.ErrLost
	ErrNotHeld     = recipes.ErrNotHeld
	ErrNotRun      = recipes.ErrNotRun
	ErrUnlock      = recipes.ErrUnlock
	ErrUpgrade     = recipes.ErrUpgrade
	ErrClosed      = recipes.ErrClosed
	ErrBadName     = recipes.ErrBadName
	ErrUnavailable = driver.ErrUnavailable
)

// WatchPredecessor is [recipes.WatchPredecessor], the default way of waiting.
func WatchPredecessor() Wait { return recipes.WatchPredecessor() }

// WatchQueue is [recipes.WatchQueue], a way of waiting that watches the whole
// queue.
func WatchQueue() Wait { return recipes.WatchQueue() }

// Poll is [recipes.Poll], a way of waiting that watches nothing.
func Poll(d time.Duration) Wait { return recipes.Poll(d) }

// WithTimeout limits how long Lock and RLock wait; see [recipes.WithTimeout].
func WithTimeout(d time.Duration) Option { return recipes.WithTimeout(d) }

// WithBackOff sets how errors that may pass are retried; see [recipes.WithBackOff].
func WithBackOff(newBackOff func() BackOff) Option { return recipes.WithBackOff(newBackOff) }

// WithHostname sets what the names of nodes begin with; see [recipes.WithHostname].
func WithHostname(name string) Option { return recipes.WithHostname(name) }

// WithLogger sets where to log; see [recipes.WithLogger].
func WithLogger(l *slog.Logger) Option { return recipes.WithLogger(l) }

// WithTrace sets hooks that see what a lock does; see [recipes.WithTrace].
func WithTrace(t *Trace) Option { return recipes.WithTrace(t) }

// WithData adds data to the record that nodes carry; see [recipes.WithData].
func WithData(data []byte) Option { return recipes.WithData(data) }

// Retention says how long a process may keep a lock's place in the queue; see WithRetention.
type Retention = recipes.Retention

// WithRetention has the goroutines of one client share one place in the queue of a lock, which is kept
// for a short time after Unlock: see [recipes.WithRetention].
func WithRetention(r Retention) Option { return recipes.WithRetention(r) }

// WithoutRetention undoes WithRetention for one lock of a client; see
// [recipes.WithoutRetention].
func WithoutRetention() Option { return recipes.WithoutRetention() }

// WithWait sets the way of waiting for others; see [recipes.WithWait].
func WithWait(w Wait) Option { return recipes.WithWait(w) }
