package etcddriver

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// beat sends a heartbeat. It returns nil if the answers prove that etcd has counted
// it.
//
// The answer to a keep-alive alone proves nothing: a leader that was paused, and
// was replaced meanwhile, answers keep-alives until it learns of its successor. So
// a read follows, which a leader answers only after a majority has confirmed that
// it leads. Every answer has the term of the last change that its server has
// applied. If both answers have the same term, there was no newer leader when the
// keep-alive was counted. The reasons:
//
//   - The leader at the time of the read has at most the term of the answer. The
//     reason: a server applies an entry of a leader before it answers a read under
//     that leader.
//   - No older leader can have confirmed the read, because a majority has accepted
//     an entry of this term before the keep-alive was sent.
//   - So the leader of this term still led after the keep-alive was counted. A
//     server that has applied an entry of this term sends keep-alives to no older
//     leader, and there was no newer one.
//
// A leader that is elected later gives each lease its whole time again.
//
// The revision of the store never goes back, unless an old backup is restored. Then
// the nodes of the session may be missing, and etcd does not serve its watches, which
// wait for later revisions. So the session ends.
func (s *session) beat(ctx context.Context) error {
	for range 2 { // a leader may have been elected between the two answers
		alive, err := s.beats.send(ctx, s.client, s.id)
		if err != nil {
			return err
		}
		if alive.TTL <= 0 {
			s.lease.End(errExpired)
			return errExpired
		}
		newest := s.newest.Load()
		read, err := s.client.Get(ctx, s.settings.root(), clientv3.WithCountOnly())
		if err != nil {
			return err
		}
		if read.Header.Revision < newest {
			s.lease.End(errRestored)
			return errRestored
		}
		s.newest.Store(read.Header.Revision)
		if alive.Header.RaftTerm == read.Header.RaftTerm {
			return nil
		}
	}
	return errors.New("leaders changed during a heartbeat")
}

// heartbeats is the stream of a session for keep-alives. One stream serves all of
// them, because the client library logs in again for each stream, and that costs
// the server far more than a keep-alive.
type heartbeats struct {
	turn   chan struct{} // has capacity 1, and holds a value while a heartbeat is on its way
	stream pb.Lease_LeaseKeepAliveClient
	end    context.CancelFunc // ends the stream
}

// send sends a keep-alive and waits for its answer. If ctx ends, it gives the stream
// up, since an answer to this keep-alive must not be taken for one to the next.
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
	if h.stream == nil {
		var life context.Context
		life, h.end = context.WithCancel(client.Ctx())
		defer context.AfterFunc(ctx, h.end)()
		if h.stream, err = pb.NewLeaseClient(client.ActiveConnection()).LeaseKeepAlive(life); err != nil {
			return nil, err
		}
	} else {
		defer context.AfterFunc(ctx, h.end)()
	}
	if err := h.stream.Send(request); err != nil {
		return nil, err
	}
	return h.stream.Recv()
}
