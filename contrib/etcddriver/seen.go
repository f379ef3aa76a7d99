package etcddriver

import (
	"fmt"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/dlock-go/dlock/driver"
)

var (
	errRestored     = fmt.Errorf("%w: etcd has lost changes, as if an old backup was restored", driver.ErrSessionEnded)
	errOtherCluster = fmt.Errorf("%w: the answer is from another etcd cluster: "+
		"the data source name may only have servers of one, which is not made anew while it is in use", driver.ErrSessionEnded)
)

// seen is a session's knowledge of the store. A contradicting reply ends the
// session, because nodes may be lost.
type seen struct {
	revision atomic.Int64  // highest revision in any reply
	cluster  atomic.Uint64 // cluster ID in the first reply
}

// check returns an error if a reply contradicts s. before is the value of
// s.revision when the request was sent.
func (s *seen) check(before int64, answer any) error {
	var h *pb.ResponseHeader
	switch answer := answer.(type) { // revisions in other replies may be old
	case *pb.RangeResponse:
		h = answer.Header
	case *pb.TxnResponse:
		h = answer.Header
	case *pb.DeleteRangeResponse:
		h = answer.Header
	case *pb.LeaseGrantResponse:
		return s.sameCluster(answer.Header)
	}
	if err := s.sameCluster(h); err != nil || h == nil {
		return err
	}
	if h.Revision < before {
		return errRestored
	}
	for last := before; last < h.Revision && !s.revision.CompareAndSwap(last, h.Revision); {
		last = s.revision.Load()
	}
	return nil
}

func (s *seen) sameCluster(h *pb.ResponseHeader) error {
	if h == nil || s.cluster.CompareAndSwap(0, h.ClusterId) || s.cluster.Load() == h.ClusterId {
		return nil
	}
	return errOtherCluster
}
