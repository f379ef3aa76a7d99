package dlock

import (
	"log/slog"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes"
)

// The names that applications need most from the packages below. Hooks and ways of waiting are in
// package recipes.
type (
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
	// Wait is a way of waiting; see [recipes.Predecessor].
	Wait = recipes.Wait
	// Contender is a member of a lock's queue; see [recipes.Contender].
	Contender = recipes.Contender
)

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
	ErrUpgrade     = recipes.ErrUpgrade
	ErrClosed      = recipes.ErrClosed
	ErrName        = recipes.ErrName
	ErrUnavailable = driver.ErrUnavailable
)

// WithTimeout is [recipes.WithTimeout].
func WithTimeout(d time.Duration) Option { return recipes.WithTimeout(d) }

// WithBackOff is [recipes.WithBackOff].
func WithBackOff(newBackOff func() BackOff) Option { return recipes.WithBackOff(newBackOff) }

// WithHostname is [recipes.WithHostname].
func WithHostname(name string) Option { return recipes.WithHostname(name) }

// WithLogger is [recipes.WithLogger].
func WithLogger(l *slog.Logger) Option { return recipes.WithLogger(l) }

// WithTrace is [recipes.WithTrace].
func WithTrace(t *Trace) Option { return recipes.WithTrace(t) }

// WithData is [recipes.WithData].
func WithData(data []byte) Option { return recipes.WithData(data) }

// WithWait is [recipes.WithWait].
func WithWait(w Wait) Option { return recipes.WithWait(w) }
