package dlock

import (
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/recipes"
)

// Errors to match with errors.Is. One error may match several of them.
var (
	// ErrLocked is returned by TryLock and TryRLock if they would have to wait
	// for another contender.
	ErrLocked = recipes.ErrLocked

	// ErrTimeout is returned if the deadline of the context or the time of
	// WithTimeout has passed before the lock was granted. The error also
	// matches context.DeadlineExceeded. It matches ErrUnavailable, too, if the
	// store did not answer by then. Its message names the holder that the
	// waiter saw when it last listed the queue.
	ErrTimeout = recipes.ErrTimeout

	// ErrLost means that the lock was held and then lost: its session has
	// ended, or an operator removed its node. Another contender may hold it.
	ErrLost = recipes.ErrLost

	// ErrNotHeld means that the lock was unlocked already. A Lock that comes
	// from no call, such as the nil of a call that failed, returns it, too.
	ErrNotHeld = recipes.ErrNotHeld

	// ErrNotRun is returned by WithLock and WithRLock if they did not get the
	// lock, so that the function was not called. The error also matches the
	// error that Lock or RLock returned.
	ErrNotRun = recipes.ErrNotRun

	// ErrUnlock is returned by Unlock, WithLock and WithRLock if the lock was
	// held to the end, but the store has not confirmed that its node is
	// removed. The node may block other contenders until it is removed in the
	// background or its session ends.
	ErrUnlock = recipes.ErrUnlock

	// ErrUpgrade is returned to a caller that holds the lock shared and wants it
	// exclusively. To wait for that would be a deadlock.
	ErrUpgrade = recipes.ErrUpgrade

	// ErrClosed is returned by every call of a closed client, and of a client
	// that was never opened.
	ErrClosed = recipes.ErrClosed

	// ErrBadName is returned by every use of a lock whose name breaks the rules
	// for names.
	ErrBadName = recipes.ErrBadName

	// ErrUnavailable means that the store cannot be reached, or did not answer
	// in time.
	ErrUnavailable = driver.ErrUnavailable

	// ErrSessionEnded means that the session with the store has ended. It is
	// the cause of a loss, and comes in the arguments of hooks.
	ErrSessionEnded = driver.ErrSessionEnded
)
