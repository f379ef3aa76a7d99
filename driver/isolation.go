package driver

import (
	"context"
	"errors"
	"net"
	"time"
)

// Isolator is a connector that can separate a part of its store, so that the
// conformance kit can run on a user's own server.
//
// Call the function [Isolate] rather than the interface.
type Isolator interface {
	// Isolate returns a connector to the part of the store that i.Name
	// identifies. Neither this connector nor a part with another name shares
	// anything with that part. Isolate does no I/O. The first session creates
	// what the part needs, such as tables.
	//
	// The function remove removes everything in the part, and whatever was
	// created for it. Close the sessions of c before calling it.
	Isolate(i Isolation) (c Connector, remove func(ctx context.Context) error, err error)
}

// Isolation describes a separate part of a store to [Isolator].
type Isolation struct {
	// Name has at most 20 characters: lower-case letters and digits, of which
	// the first is a letter.
	Name string
	// SessionTimeout is the session timeout to ask for. Zero means the
	// connector's own session timeout.
	SessionTimeout time.Duration
	// Dial makes the network connections of the sessions, to which the driver
	// adds TLS. If Dial is nil, the connector dials as usual.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Isolate calls c.Isolate: see [Isolator]. If the connector does not support
// it, the error matches [errors.ErrUnsupported].
func Isolate(c Connector, i Isolation) (part Connector, remove func(ctx context.Context) error, err error) {
	if s, ok := c.(Isolator); ok {
		return s.Isolate(i)
	}
	return nil, nil, errors.ErrUnsupported
}
