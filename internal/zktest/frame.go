package zktest

import (
	"encoding/binary"
	"io"
	"slices"

	"github.com/dlock-go/dlock/internal/testenv"
)

// Operation codes of the ZooKeeper protocol
// (org.apache.zookeeper.ZooDefs.OpCode). The first request of a connection has
// no opcode and counts as OpConnect.
const (
	OpConnect         int32 = -10
	OpClose           int32 = -11
	OpCreate          int32 = 1
	OpDelete          int32 = 2
	OpGetData         int32 = 4
	OpGetACL          int32 = 6
	OpSync            int32 = 9
	OpPing            int32 = 11
	OpGetChildren2    int32 = 12
	OpMulti           int32 = 14
	OpCreateContainer int32 = 19
	OpAuth            int32 = 100
	OpSetWatches      int32 = 101
)

// Op returns a function that reports whether its argument is one of the given
// opcodes.
func Op(opcodes ...int32) func(opcode int32) bool {
	return func(opcode int32) bool { return slices.Contains(opcodes, opcode) }
}

// maxFrame is exceeded by the first four bytes of TLS or a four-letter word.
const maxFrame = 16 << 20

const headerSize = 4

// readFrame fails with [testenv.ErrOtherProtocol] if the bytes are not a
// packet.
func readFrame(r io.Reader) ([]byte, error) {
	head := make([]byte, headerSize)
	if n, err := io.ReadFull(r, head); err != nil {
		return head[:n], err
	}
	size := int32(binary.BigEndian.Uint32(head))
	if size < 0 || size > maxFrame {
		return head, testenv.ErrOtherProtocol
	}
	frame := append(head, make([]byte, size)...)
	n, err := io.ReadFull(r, frame[headerSize:])
	return frame[:headerSize+n], err
}

func int32At(frame []byte, offset int) int32 {
	offset += headerSize
	if len(frame) < offset+4 {
		return 0
	}
	return int32(binary.BigEndian.Uint32(frame[offset:]))
}

func int64At(frame []byte, offset int) int64 {
	offset += headerSize
	if len(frame) < offset+8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(frame[offset:]))
}

// writeFrame writes the fields in big-endian order, and byte slices after their
// lengths.
func writeFrame(w io.Writer, fields ...any) error {
	frame := make([]byte, headerSize)
	for _, field := range fields {
		if b, ok := field.([]byte); ok {
			frame = append(binary.BigEndian.AppendUint32(frame, uint32(len(b))), b...)
			continue
		}
		var err error
		if frame, err = binary.Append(frame, binary.BigEndian, field); err != nil {
			return err
		}
	}
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-headerSize))
	_, err := w.Write(frame)
	return err
}
