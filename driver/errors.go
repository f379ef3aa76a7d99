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

	// ErrExpired is matched by the error of a session whose lease has run out
	// because the store did not answer. It also matches ErrSessionEnded. Unless
	// this process was paused, the store still keeps the session for the lease's
	// margin: see [SessionInfo].
	ErrExpired = errors.New("the lease ran out")

	// ErrLostData is matched by the error of a session that the store has ended
	// because it may have lost data. It also matches ErrSessionEnded. The store
	// grants no lock until the leases of all its sessions have run out, so a
	// holder has about as much time left as after ErrExpired.
	ErrLostData = errors.New("the store may have lost data")

	// ErrGone is returned for a node that is no longer in the queue.
	ErrGone = errors.New("node is gone")

	// ErrStale is returned by SetValue if a later contender has set a value.
	ErrStale = errors.New("a later contender has set a value")

	// ErrBadName is returned for an invalid node name, prefix or queue.
	ErrBadName = errors.New("bad name")
)
