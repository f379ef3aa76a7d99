package zktest

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dlock-go/dlock/internal/testenv"
)

// FuzzFrame checks that readFrame returns exactly the bytes that were sent,
// even if they are truncated or are not a packet.
func FuzzFrame(f *testing.F) {
	f.Add([]byte{0, 0, 0, 4, 1, 2, 3, 4, 9})
	f.Add([]byte{0, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 9, 1})
	f.Add([]byte("ruok"))
	f.Add([]byte{0x16, 3, 1, 2, 0, 1})
	f.Add([]byte{0, 0x10, 0, 0})
	f.Add([]byte{0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		got, err := readFrame(bytes.NewReader(in))
		require.True(t, bytes.HasPrefix(in, got), "%x became %x", in, got)
		if len(in) < headerSize {
			require.Error(t, err)
			require.Equal(t, string(in), string(got))
			return
		}
		size := int64(int32(binary.BigEndian.Uint32(in)))
		switch {
		case size < 0 || size > maxFrame:
			require.ErrorIs(t, err, testenv.ErrOtherProtocol)
			require.Len(t, got, headerSize)
		case int64(len(in)) < headerSize+size:
			require.Error(t, err)
			require.Equal(t, string(in), string(got))
		default:
			require.NoError(t, err)
			require.Len(t, got, headerSize+int(size))
			for _, offset := range []int{0, 4, 8, 1 << 20} { // within the packet or beyond its end
				whole := headerSize+offset+4 <= len(got)
				require.True(t, whole || int32At(got, offset) == 0)
				if whole {
					require.Equal(t, int32(binary.BigEndian.Uint32(got[headerSize+offset:])), int32At(got, offset))
				}
			}
		}
	})
}

// FuzzWriteFrame checks that writeFrame sends a single packet with the given
// fields.
func FuzzWriteFrame(f *testing.F) {
	f.Add(int32(1), int64(2), []byte("x"))
	f.Fuzz(func(t *testing.T, a int32, b int64, text []byte) {
		var out bytes.Buffer
		require.NoError(t, writeFrame(&out, a, b, text))
		r := bytes.NewReader(out.Bytes())
		frame, err := readFrame(r)
		require.NoError(t, err)
		require.Zero(t, r.Len())
		require.Equal(t, a, int32At(frame, 0))
		require.Equal(t, b, int64At(frame, 4))
		require.Equal(t, int32(len(text)), int32At(frame, 12))
		rest, err := io.ReadAll(bytes.NewReader(frame[headerSize+16:]))
		require.NoError(t, err)
		require.Equal(t, string(text), string(rest))
	})
}
