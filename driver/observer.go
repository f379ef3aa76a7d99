package driver

import "context"

// Observer is an optional part of a [Connector], for tools that only look. They
// must not need more rights or room than that takes, leave something behind in the
// store, or wait for a grace.
type Observer interface {
	// Observe returns a session that changes nothing in the store, and is not
	// in it, so that it does not end while the store is out of reach. Its List,
	// WatchQueue, Read, Walk and Value see what those of other sessions do, or, on
	// a replica, what they did some time ago. A store that nobody has used is
	// empty. The methods that change something return an error that matches
	// [errors.ErrUnsupported].
	//
	// Otherwise it is like [Connector.Connect]. A connector that wraps one without
	// Observe calls its Connect.
	Observe(ctx context.Context) (Session, error)
}
