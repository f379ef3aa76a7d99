package mysqltest

import (
	"io"

	"github.com/dlock-go/dlock/internal/testenv"
)

// Operations for [testenv.Proxy.Counts]: commands of the MySQL protocol. Each
// command is one round trip, except those that close a statement or the
// connection, which have no reply. Messages of the log-in count as OpOther.
const (
	OpOther = int32(-1)
	OpQuit  = int32(1)
	OpQuery = int32(3)
	OpPing  = int32(14)
)

// Protocol makes a [testenv.Proxy] understand MySQL without TLS and
// compression.
func Protocol() (requests, replies testenv.FrameReader) {
	return readPacket, testenv.ReadBytes
}

// readPacket reads a packet. The first one of an exchange has the sequence
// number 0 and begins with the command.
func readPacket(r io.Reader) (testenv.Frame, error) {
	head := make([]byte, 4)
	if n, err := io.ReadFull(r, head); err != nil {
		return testenv.Frame{Bytes: head[:n]}, err
	}
	size := int(head[0]) | int(head[1])<<8 | int(head[2])<<16
	packet := append(head, make([]byte, size)...)
	n, err := io.ReadFull(r, packet[4:])
	frame := testenv.Frame{Bytes: packet[:4+n], Kind: testenv.Request, Op: OpOther}
	if n > 0 && head[3] == 0 {
		frame.Op = int32(packet[4])
	}
	return frame, err
}
