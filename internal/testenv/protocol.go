package testenv

import (
	"errors"
	"io"
)

// Protocol returns the readers for a new connection through a [Proxy]. A reader
// may keep state, because it belongs to one connection and is called by a
// single goroutine.
type Protocol func() (requests, replies FrameReader)

// FrameReader reads the next frame in one direction of a connection. If it
// returns an error, the frame holds the bytes read so far. If the error is
// [ErrOtherProtocol], the proxy forwards all later bytes in that direction
// unchanged.
type FrameReader func(io.Reader) (Frame, error)

// ErrOtherProtocol means that a connection does not use the proxy's protocol.
var ErrOtherProtocol = errors.New("testenv: bytes of another protocol")

// Frame is a message, or a piece of one, that a proxy forwards, delays, loses
// or holds as a whole.
type Frame struct {
	Bytes []byte
	Kind  Kind
	// Op is a request's operation code.
	Op int32
	// ID matches a reply to its request.
	ID int64
}

// Kind is the kind of a [Frame].
type Kind int

const (
	Opaque  Kind = iota // bytes that the proxy forwards without interpreting them
	Request             // a client's request
	Reply               // a server's reply to a request
	Event               // a server's message that is not a reply
)

// ReadBytes is a [FrameReader] that returns bytes as they arrive. A proxy
// without a protocol uses it.
func ReadBytes(r io.Reader) (Frame, error) {
	buf := make([]byte, 16<<10)
	n, err := r.Read(buf)
	return Frame{Bytes: buf[:n]}, err
}
