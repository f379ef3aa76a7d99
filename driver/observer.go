package driver

import "context"

// Observer is an optional part of a [Connector], for tools that only read. Such
// a tool needs no rights beyond reading, takes no room in the store, leaves
// nothing behind, and waits for no grace (see [SessionInfo]).
type Observer interface {
	// Observe returns a session that changes nothing in the store. The methods
	// that change something return an error that matches [errors.ErrUnsupported].
	// List, WatchQueue, Read, Walk and Value return the same as in any other
	// session or, on a replica, what was true some time ago. A store that was
	// never used is empty. The store does not know the session, so the session
	// does not end while the store is out of reach.
	//
	// Otherwise Observe is like [Connector.Connect]. A connector that wraps
	// another one calls the inner Connect if the inner connector has no Observe.
	Observe(ctx context.Context) (Session, error)
}
