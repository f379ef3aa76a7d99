package driver

import "errors"

// Errors returned by sessions match one of the following, as reported by
// errors.Is. Drivers wrap them to say what happened.
var (
	// ErrUnavailable marks an error after which a retry may succeed: the store
	// could not be reached, or could not say whether it had carried out the
	// request.
	ErrUnavailable = errors.New("store unavailable")

	// ErrSessionEnded is the error of every request in a session that has
	// ended, because it was closed, has expired, or was cut off for so long
	// that it may have expired.
	ErrSessionEnded = errors.New("session ended")

	// ErrGone is the error of a request for a node that is no longer in the
	// queue.
	ErrGone = errors.New("node is gone")

	// ErrBadName is the error for an invalid node name, prefix or queue.
	ErrBadName = errors.New("bad name")
)
