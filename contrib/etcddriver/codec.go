package etcddriver

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec of gRPC
	"google.golang.org/grpc/mem"
)

// codec calls the methods that etcd's messages have for their own encoding. The codec
// of gRPC calls the same methods, but by reflection, which takes about 1 % of the time
// of a free lock. Messages without these methods go to the codec of gRPC.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

// message has the methods that gogo/protobuf generates.
type message interface {
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
	Reset()
}

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(message)
	if !ok {
		return c.CodecV2.Marshal(v)
	}
	b, err := m.Marshal()
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

// Unmarshal implements encoding.CodecV2. It resets the message first, because
// methods of gogo/protobuf add to what is there: a request that is made again has the
// same reply.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(message)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	b := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer b.Free()
	m.Reset()
	return m.Unmarshal(b.ReadOnlyData()) // copies what it keeps
}
