package testenv

import (
	"errors"
	"io"
)

// Protocol returns the two readers for a new connection of a [Proxy]. A reader
// may keep state, as each belongs to one connection and is called by one
// goroutine.
type Protocol func() (requests, replies FrameReader)

// FrameReader reads the next frame of one direction of a connection. It returns
// what it has read, even if it also returns an error. If the bytes are not of
// the protocol, it returns [ErrOtherProtocol], and the proxy forwards the rest
// of that direction as it comes.
type FrameReader func(io.Reader) (Frame, error)

// ErrOtherProtocol says that the bytes of a connection are not of the proxy's protocol.
var ErrOtherProtocol = errors.New("testenv: bytes of another protocol")

// Frame is what a proxy forwards, delays, loses or holds as a whole.
type Frame struct {
	Bytes []byte
	Kind  Kind
	// Op is the operation that a request asks for.
	Op int32
	// ID is the same in a request and in its reply.
	ID int64
}

// Kind says what a [Frame] is.
type Kind int

const (
	Opaque  Kind = iota // bytes without a meaning for the proxy
	Request             // a request from a client
	Reply               // the server's reply to one request
	Event               // a message of the server that replies to no request
)

// ReadBytes is the [FrameReader] of a proxy without a protocol.
func ReadBytes(r io.Reader) (Frame, error) {
	buf := make([]byte, 16<<10)
	n, err := r.Read(buf)
	return Frame{Bytes: buf[:n]}, err
}
