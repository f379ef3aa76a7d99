package etcddriver

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Beat implements [session.Store]. It succeeds only if the lease was renewed.
//
// A keep-alive's reply is no proof, because a deposed leader keeps answering.
// Beat therefore compares its Raft term with that of a linearizable read. Equal
// terms prove that no newer leader existed when the keep-alive was handled. A
// leader elected later restarts every lease.
func (b *backend) Beat(ctx context.Context) (next time.Duration, err error) {
	sent := time.Now()
	for range 2 { // a leader may be elected in between
		alive, err := b.beats.send(ctx, b.client, b.id)
		b.conns.closeSilent(ctx, sent, nil)
		if err != nil {
			return 0, err
		}
		if err := b.seen.sameCluster(alive.Header); err != nil {
			return 0, err
		}
		if alive.TTL <= 0 {
			return 0, errExpired
		}
		read, err := b.client.Get(ctx, b.settings.root(), clientv3.WithCountOnly())
		if err != nil {
			return 0, err
		}
		b.listener.check(read.Header.Revision)
		if alive.Header.RaftTerm == read.Header.RaftTerm {
			return 0, nil
		}
	}
	return 0, errors.New("leaders changed during a heartbeat")
}

// heartbeats is the stream for a session's keep-alives. It stays open, because
// each new stream costs a login.
type heartbeats struct {
	turn   chan struct{} // semaphore, held while a heartbeat is in flight
	stream pb.Lease_LeaseKeepAliveClient
	end    context.CancelFunc // closes stream
}

// send sends a keep-alive and waits for the reply. If ctx ends first, it closes
// the stream, because the reply may still arrive.
func (h *heartbeats) send(ctx context.Context, client *clientv3.Client, id clientv3.LeaseID) (*pb.LeaseKeepAliveResponse, error) {
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	answer, err := h.exchange(ctx, client, &pb.LeaseKeepAliveRequest{ID: int64(id)})
	if err != nil && h.end != nil {
		h.end()
		h.stream, h.end = nil, nil
	}
	return answer, err
}

func (h *heartbeats) exchange(ctx context.Context, client *clientv3.Client, request *pb.LeaseKeepAliveRequest) (_ *pb.LeaseKeepAliveResponse, err error) {
	life := client.Ctx()
	if h.stream == nil {
		life, h.end = context.WithCancel(life)
	}
	defer context.AfterFunc(ctx, h.end)()
	if h.stream == nil {
		if h.stream, err = pb.NewLeaseClient(client.ActiveConnection()).LeaseKeepAlive(life); err != nil {
			return nil, err
		}
	}
	if err := h.stream.Send(request); err != nil {
		return nil, err
	}
	return h.stream.Recv()
}
