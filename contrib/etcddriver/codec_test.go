package etcddriver

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	health "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
)

var messages = map[string]struct{ full, empty any }{
	"a request": {&pb.TxnRequest{
		Compare: []*pb.Compare{{Key: []byte("a"), TargetUnion: &pb.Compare_CreateRevision{CreateRevision: 7}}},
		Success: []*pb.RequestOp{
			{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("b"), Value: make([]byte, 5000), Lease: -1}}},
		},
	}, &pb.TxnRequest{}},
	"a reply": {&pb.RangeResponse{
		Header: &pb.ResponseHeader{Revision: 9}, Count: 1, Kvs: []*mvccpb.KeyValue{{Key: []byte("b"), CreateRevision: 8}},
	}, &pb.RangeResponse{}},
	"a message with nothing in it":  {&authpb.UserAddOptions{}, &authpb.UserAddOptions{NoPassword: true}},
	"a message without the methods": {&health.HealthCheckRequest{Service: "a"}, &health.HealthCheckRequest{}},
}

func TestTheCodecWritesAndReadsWhatTheOneOfGRPCDoes(t *testing.T) {
	c := newCodec()
	for what, m := range messages {
		want, err := c.CodecV2.Marshal(m.full)
		require.NoError(t, err, what)
		got, err := c.Marshal(m.full)
		require.NoError(t, err, what)
		require.Equal(t, want.Materialize(), got.Materialize(), what)

		require.NoError(t, c.Unmarshal(got, m.empty), what)
		again, err := c.Marshal(m.empty)
		require.NoError(t, err, what)
		assert.Equal(t, want.Materialize(), again.Materialize(), what)
	}
}

// A reply into which another reply was read before must hold nothing of that.
func TestTheCodecForgetsAnEarlierReply(t *testing.T) {
	c := newCodec()
	reply := &pb.RangeResponse{More: true, Kvs: []*mvccpb.KeyValue{{Key: []byte("a")}}}
	data, err := c.Marshal(&pb.RangeResponse{Kvs: []*mvccpb.KeyValue{{Key: []byte("b")}}})
	require.NoError(t, err)
	require.NoError(t, c.Unmarshal(data, reply))
	require.Len(t, reply.Kvs, 1)
	assert.Equal(t, "b", string(reply.Kvs[0].Key))
	assert.False(t, reply.More)
}

// A message must hold nothing of the buffer from which it was read, because gRPC uses
// the buffer again.
func TestTheCodecCopiesWhatItReads(t *testing.T) {
	c := newCodec()
	data, err := c.Marshal(&pb.PutRequest{Key: []byte("key"), Value: []byte("value")})
	require.NoError(t, err)
	buffer := data.Materialize()
	var m pb.PutRequest
	require.NoError(t, c.Unmarshal(mem.BufferSlice{mem.SliceBuffer(buffer)}, &m))
	clear(buffer)
	assert.Equal(t, "key", string(m.Key))
	assert.Equal(t, "value", string(m.Value))
}

func TestTheCodecRefusesDamagedMessages(t *testing.T) {
	damaged := mem.BufferSlice{mem.SliceBuffer("\x0a\xff")} // a field that is longer than the message
	for what, m := range messages {
		assert.Error(t, newCodec().Unmarshal(damaged, m.empty), what)
	}
	_, err := newCodec().Marshal("no message")
	assert.Error(t, err)
}
