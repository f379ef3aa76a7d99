package etcddriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/calls"
	"github.com/dlock-go/dlock/driver/watches"
)

var (
	_ driver.Session   = (*session)(nil)
	_ driver.Inspector = (*session)(nil)
)

// session implements [driver.Session] by an etcd lease. Each session has its
// own etcd client.
type session struct {
	*connector
	id      clientv3.LeaseID
	timeout time.Duration // as granted by etcd
	client  *clientv3.Client
	lease   *driver.Lease
	beats   heartbeats
	calls   calls.Gate
	watches watches.Set
	stream  watchStream
	newest  atomic.Int64 // revision of the store at the last heartbeat
	reaped  atomic.Int64 // revision at which orphans were last reaped, or zero

	mu      sync.Mutex
	own     map[int64]*ownNode  // nodes returned by Create, by token
	numbers map[string]*numbers // by queue, for the queues that have a number in use
	queues  map[string]*queueWatch
	orphans []orphan // while there are any, the method reap is running

	closing sync.Mutex
	gone    bool // the lease was revoked; guarded by closing
}

type ownNode struct {
	queue, id string
	number    int64
	data      []byte

	// The fields below are guarded by session.mu. The key is reused only
	// once no request can still remove it.
	removing int  // requests in flight that remove the node
	lost     bool // a request to remove the node got no reply and may still arrive
}

func newSession(c *connector, client *clientv3.Client, grant *clientv3.LeaseGrantResponse) *session {
	timeout := time.Duration(grant.TTL) * time.Second
	return &session{
		connector: c, client: client, id: grant.ID, timeout: timeout, lease: driver.NewLease(timeout, 0),
		calls: calls.Gate{Limit: c.settings.requestTimeout()},
		beats: heartbeats{turn: make(chan struct{}, 1)},
		own:   make(map[int64]*ownNode), numbers: make(map[string]*numbers), queues: make(map[string]*queueWatch),
	}
}

func (s *session) start() {
	s.calls.Go(func() {
		s.lease.Run(s.beat)
		s.watches.End()
	})
	s.calls.Go(s.tendWatches)
}

// Done implements [driver.Session].
func (s *session) Done() <-chan struct{} { return s.lease.Done() }

// Err implements [driver.Session].
func (s *session) Err() error { return s.lease.Err() }

// Describe implements [driver.Inspector].
func (s *session) Describe() driver.SessionInfo {
	return driver.SessionInfo{ID: sessionName(s.id), Server: strings.Join(s.settings.endpoints, ","), Timeout: s.timeout}
}

// OnHeartbeat implements [driver.Inspector].
func (s *session) OnHeartbeat(f func(left, term time.Duration)) bool {
	s.lease.OnRenew(f)
	return true
}

// sessionName returns the lease ID as 16 hexadecimal digits.
func sessionName(id clientv3.LeaseID) string {
	digits := strconv.FormatUint(uint64(id), 16)
	return strings.Repeat("0", 16-len(digits)) + digits
}

// ask makes a request on a queue, or fails if the session has ended. It wraps
// errors for the session's caller.
func (s *session) ask(ctx context.Context, what, queue string, request func(context.Context) error) error {
	life, leave, open := s.calls.Enter(ctx)
	if !open {
		return s.lease.Err()
	}
	defer leave()
	if err := cmp.Or(s.lease.Err(), driver.CheckQueue(queue)); err != nil {
		return err
	}
	err := request(life)
	if errors.Is(err, context.Canceled) && errors.Is(context.Cause(life), calls.ErrLimit) {
		err = fmt.Errorf("no answer within %v", s.calls.Limit)
	}
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		s.lease.End(errExpired)
	}
	if ended := s.lease.Err(); ended != nil {
		return ended
	}
	if err != nil {
		return fmt.Errorf("etcddriver: %s in %q: %w", what, queue, classify(ctx, err))
	}
	return nil
}

// closeTimeout limits how long Close waits for etcd.
const closeTimeout = 2 * time.Second

// Close ends the lease in this process and then revokes it in etcd.
func (s *session) Close() error {
	s.lease.End(errClosed)
	s.calls.Close()
	s.closing.Lock()
	defer s.closing.Unlock()
	if s.gone {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	if err := s.revoke(ctx); err != nil {
		return fmt.Errorf("etcddriver: close: the nodes stay until the session times out: %w", classify(ctx, err))
	}
	s.gone = true
	return nil
}

// revoke revokes the lease in etcd and closes the client, even if revoking
// fails. If called again, it uses a new client.
func (s *session) revoke(ctx context.Context) (err error) {
	if s.client == nil {
		if s.client, err = s.connector.client(ctx); err != nil {
			return err
		}
	}
	_, err = s.client.Revoke(ctx, s.id)
	s.client.Close()
	s.client = nil
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return err
}
