package etcddriver

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/faults"
	"github.com/dlock-go/dlock/internal/etcdtest"
	"github.com/dlock-go/dlock/internal/testenv"
)

// store is a connector that injects faults into connections and requests.
type store struct {
	t      *testing.T
	server *etcdtest.Server
	prefix string
	params string
	// existing opens the store with NewConnector and an etcd client.
	existing bool

	mu    sync.Mutex
	links map[driver.Session]*link
	last  driver.Session // most recently created session
}

type link struct {
	proxy   *testenv.Proxy
	wire    wire
	watches watchStreams
	reused  bool
}

func newStore(t *testing.T, server *etcdtest.Server, params string) *store {
	return &store{t: t, server: server, prefix: server.Prefix(), params: params, links: make(map[driver.Session]*link)}
}

func (s *store) Check(ctx context.Context) ([]driver.Finding, error) {
	c, err := Driver{}.OpenConnector("etcd://" + s.server.Addr() + "/" + s.prefix + "?" + s.params)
	if err != nil {
		return nil, err
	}
	return c.(driver.Checker).Check(ctx)
}

func (s *store) Connect(ctx context.Context) (driver.Session, error) {
	l := s.freeLink()
	opened, err := s.connector(l.proxy.Addr())
	if err != nil {
		return nil, err
	}
	c := opened.(*connector)
	c.dial = []grpc.DialOption{grpc.WithChainUnaryInterceptor(l.wire.intercept), grpc.WithChainStreamInterceptor(l.watches.intercept)}
	made, err := c.Connect(ctx)
	if err == nil {
		s.mu.Lock()
		s.links[made], s.last = l, made
		s.mu.Unlock()
	}
	return made, err
}

func (s *store) connector(addr string) (driver.Connector, error) {
	if !s.existing {
		return Driver{}.OpenConnector("etcd://" + addr + "/" + s.prefix + "?" + s.params)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	defer client.Close() // each session opens its own connections
	return NewConnector(client, Options{SessionTimeout: time.Second, Prefix: s.prefix})
}

// freeLink reuses a closed session's proxy, because some tests count
// goroutines.
func (s *store) freeLink() *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	for old, l := range s.links {
		if !l.reused && old.Err() != nil && l.proxy.Connections() == 0 {
			l.reused = true
			l.proxy.Heal()
			l.proxy.SetDelay(0)
			return &link{proxy: l.proxy}
		}
	}
	return &link{proxy: testenv.NewProxy(s.t, s.server.Addr(), nil)}
}

func (s *store) link(session driver.Session) *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.links[session]
}

// wire counts requests below the client library, and injects faults into them.
type wire struct {
	mu     sync.Mutex
	next   func(method string, request any) bool
	fault  func(ctx context.Context, method string, request any, send func() error)
	counts map[string]int
}

// play injects a fault into the next matching request.
func (w *wire) play(match func(method string, request any) bool, fault func(context.Context, string, any, func() error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.next, w.fault = match, fault
}

var errBroken = status.Error(codes.Unavailable, "transport is closing")

func (w *wire) intercept(
	ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	send := func() error { return invoke(ctx, method, request, reply, conn, opts...) }
	w.mu.Lock()
	if w.counts == nil {
		w.counts = make(map[string]int)
	}
	w.counts[method]++
	var fault func(context.Context, string, any, func() error)
	if w.next != nil && w.next(method, request) {
		fault, w.next = w.fault, nil
	}
	w.mu.Unlock()
	if fault == nil {
		return send()
	}
	fault(ctx, method, request, send)
	return errBroken
}

// total returns the number of requests, except those that maintain the session.
func (w *wire) total() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts["/etcdserverpb.KV/Txn"] + w.counts["/etcdserverpb.KV/Range"] + w.counts["/etcdserverpb.KV/DeleteRange"]
}

type watchStreams struct {
	streams sync.Map
	events  atomic.Int64 // number of events received
}

// silence stops all replies on the open streams, as if their server hung.
func (w *watchStreams) silence() {
	w.streams.Range(func(stream, _ any) bool {
		stream.(*silentStream).silent.Store(true)
		return true
	})
}

func (w *watchStreams) intercept(
	ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, make grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	made, err := make(ctx, desc, conn, method, opts...)
	if err != nil || method != "/etcdserverpb.Watch/Watch" {
		return made, err
	}
	stream := &silentStream{ClientStream: made, events: &w.events}
	w.streams.Store(stream, nil)
	return stream, nil
}

// hang stops the events on the open streams, as if a follower's disk hung.
func (w *watchStreams) hang() {
	w.streams.Range(func(stream, _ any) bool {
		stream.(*silentStream).hangs.Store(true)
		return true
	})
}

type silentStream struct {
	grpc.ClientStream
	silent, hangs atomic.Bool
	events        *atomic.Int64
	revision      atomic.Int64 // latest revision received
}

func (s *silentStream) RecvMsg(m any) error {
	for {
		if err := s.ClientStream.RecvMsg(m); err != nil {
			return err
		}
		reply := m.(*pb.WatchResponse)
		if s.silent.Load() || s.hangs.Load() && len(reply.Events) > 0 {
			reply.Reset()
			continue
		}
		if s.hangs.Load() {
			reply.Header.Revision = min(reply.Header.Revision, s.revision.Load())
		}
		s.events.Add(int64(len(reply.Events)))
		s.revision.Store(reply.Header.Revision)
		return nil
	}
}

func (l *link) loseRequest(op faults.Op) {
	l.wire.play(matching(op), func(context.Context, string, any, func() error) { l.proxy.DropConnections() })
}

func (l *link) loseReply(op faults.Op) {
	l.wire.play(matching(op), func(_ context.Context, _ string, _ any, send func() error) {
		_ = send() // on failure, the request is lost instead
		l.proxy.DropConnections()
	})
}

// holdRequest holds back the next request for op until arrive is called.
func (l *link) holdRequest(t *testing.T, server *etcdtest.Server, op faults.Op) (arrive func()) {
	held := make(chan any, 1)
	l.wire.play(matching(op), func(_ context.Context, _ string, request any, _ func() error) {
		held <- request
		l.proxy.DropConnections()
	})
	return func() {
		client := pb.NewKVClient(raw(t, server).ActiveConnection())
		select {
		case request := <-held:
			switch r := request.(type) {
			case *pb.TxnRequest:
				_, _ = client.Txn(t.Context(), r) // etcd may reject it
			case *pb.DeleteRangeRequest:
				_, _ = client.DeleteRange(t.Context(), r)
			}
		default:
			t.Log("no request was held")
		}
	}
}

func matching(op faults.Op) func(method string, request any) bool {
	return func(method string, request any) bool {
		switch r := request.(type) {
		case *pb.RangeRequest:
			return op == faults.OpList && len(r.RangeEnd) > 0
		case *pb.DeleteRangeRequest:
			return op == faults.OpDelete
		case *pb.TxnRequest:
			return op == kindOf(r)
		}
		return false
	}
}

func kindOf(r *pb.TxnRequest) faults.Op {
	first := r.Success[0]
	switch {
	case first.GetRequestRange() != nil:
		return faults.OpCreate
	case strings.Contains(string(r.Compare[0].Key), "//cancelled/"):
		return faults.OpCleanUp
	case first.GetRequestDeleteRange() != nil:
		return faults.OpDelete
	case first.GetRequestTxn() != nil:
		return faults.OpSetValue
	}
	return faults.OpReplace
}

var rawClients struct {
	sync.Mutex
	byURL map[string]*clientv3.Client
}

func raw(t testing.TB, server *etcdtest.Server) *clientv3.Client {
	t.Helper()
	rawClients.Lock()
	defer rawClients.Unlock()
	if c := rawClients.byURL[server.URL()]; c != nil {
		return c
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{server.URL()}, Logger: zap.NewNop(), DialTimeout: 10 * time.Second})
	require.NoError(t, err)
	if rawClients.byURL == nil {
		rawClients.byURL = make(map[string]*clientv3.Client)
	}
	rawClients.byURL[server.URL()] = c
	return c
}

func closeRaw() {
	rawClients.Lock()
	defer rawClients.Unlock()
	for _, c := range rawClients.byURL {
		c.Close()
	}
}
