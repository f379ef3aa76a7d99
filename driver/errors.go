package driver

import "errors"

// Errors of sessions match one of these, as reported by errors.Is. Drivers wrap
// them to add details.
var (
	// ErrUnavailable marks an error after which a retry may succeed: the store
	// could not be reached, or could not say whether it had carried out the
	// request.
	ErrUnavailable = errors.New("store unavailable")

	// ErrSessionEnded is returned by every request of a session that has
	// ended: it was closed, has expired, or has been cut off for so long
	// that it may have expired.
	ErrSessionEnded = errors.New("session ended")

	// ErrGone is returned by requests for a node that is no longer in the
	// queue.
	ErrGone = errors.New("node is gone")

	// ErrBadName is returned for an invalid node name, prefix or queue.
	ErrBadName = errors.New("bad name")
)
