package driver

import "errors"

// Errors that sessions return, to be matched with errors.Is. What a driver returns wraps one of
// them and says what happened.
var (
	// ErrUnavailable marks an error that may pass by itself: the store could not be reached, or
	// could not say whether it did what it was asked.
	ErrUnavailable = errors.New("store unavailable")

	// ErrSessionEnded is returned by every method of a session that has ended: closed, expired,
	// or cut off for so long that it may have expired.
	ErrSessionEnded = errors.New("session ended")

	// ErrGone is returned where a node is not there any more.
	ErrGone = errors.New("node is gone")

	// ErrBadName is returned for a name, a prefix or a queue that breaks the rules for names.
	ErrBadName = errors.New("bad name")
)
