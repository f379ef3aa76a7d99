package driver

import "errors"

// Sessions return errors that match one of the errors below, by errors.Is. The
// error of a driver wraps one of them and says what has happened.
var (
	// ErrUnavailable marks an error that may pass by itself: the store could not
	// be reached, or could not say whether it has carried out the request.
	ErrUnavailable = errors.New("store unavailable")

	// ErrSessionEnded is the error of every request in a session that has ended.
	// The session was closed, has expired, or was cut off for so long that it may
	// have expired.
	ErrSessionEnded = errors.New("session ended")

	// ErrGone is the error of a request for a node that is not in the queue any
	// more.
	ErrGone = errors.New("node is gone")

	// ErrBadName is the error for a name, a prefix or a queue that breaks the
	// rules for names.
	ErrBadName = errors.New("bad name")
)
