package pgtest

import (
	"encoding/binary"
	"io"

	"github.com/dlock-go/dlock/internal/testenv"
)

// Operations for [testenv.Proxy.Counts]: the types of the client's PostgreSQL
// messages. The server answers each Sync and each Query with one ReadyForQuery,
// so the sum of the counts of OpSync and OpQuery is the number of round trips.
const (
	OpSync  = int32('S')
	OpQuery = int32('Q')
)

// Protocol makes a [testenv.Proxy] understand PostgreSQL. The first message of
// a connection has no type, and counts as operation 0.
func Protocol() (requests, replies testenv.FrameReader) {
	began := false
	return func(r io.Reader) (testenv.Frame, error) {
		if !began {
			frame, err := readMessage(r, 0)
			began = len(frame.Bytes) > 8 // 8 bytes: only a request for encryption
			return frame, err
		}
		return readMessage(r, 1)
	}, testenv.ReadBytes
}

// maxMessage is exceeded only by another protocol, such as TLS.
const maxMessage = 16 << 20

// readMessage reads a type of typeSize bytes, a length of four bytes, and the
// content.
func readMessage(r io.Reader, typeSize int) (testenv.Frame, error) {
	head := make([]byte, typeSize+4)
	if n, err := io.ReadFull(r, head); err != nil {
		return testenv.Frame{Bytes: head[:n]}, err
	}
	size := binary.BigEndian.Uint32(head[typeSize:])
	if size < 4 || size > maxMessage {
		return testenv.Frame{Bytes: head}, testenv.ErrOtherProtocol
	}
	message := append(head, make([]byte, size-4)...)
	n, err := io.ReadFull(r, message[len(head):])
	frame := testenv.Frame{Bytes: message[:len(head)+n], Kind: testenv.Request}
	if typeSize == 1 {
		frame.Op = int32(head[0])
	}
	return frame, err
}
