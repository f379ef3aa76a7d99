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

// store is a connector. Each of its sessions has a proxy of its own for faults of
// connections, a wire for faults of single requests, and the streams of its watches.
type store struct {
	t      *testing.T
	server *etcdtest.Server
	prefix string
	params string

	mu    sync.Mutex
	links map[driver.Session]*link
	last  *session // the session that was made last
}

// link is what lies between a session and the server.
type link struct {
	proxy   *testenv.Proxy
	wire    wire
	watches watchStreams
	reused  bool // whether a later session uses this link, too
}

func newStore(t *testing.T, server *etcdtest.Server, params string) *store {
	return &store{t: t, server: server, prefix: server.Prefix(), params: params, links: make(map[driver.Session]*link)}
}

func (s *store) Connect(ctx context.Context) (driver.Session, error) {
	l := s.freeLink()
	opened, err := Driver{}.OpenConnector("etcd://" + l.proxy.Addr() + "/" + s.prefix + "?" + s.params)
	if err != nil {
		return nil, err
	}
	c := opened.(*connector)
	c.dial = []grpc.DialOption{grpc.WithChainUnaryInterceptor(l.wire.intercept), grpc.WithChainStreamInterceptor(l.watches.intercept)}
	made, err := c.Connect(ctx)
	if err == nil {
		s.mu.Lock()
		s.links[made], s.last = l, made.(*session)
		s.mu.Unlock()
	}
	return made, err
}

// freeLink reuses the proxy of a session that was closed. Otherwise a test that
// counts goroutines would also count those of unused proxies.
func (s *store) freeLink() *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	for old, l := range s.links {
		if !l.reused && old.(*session).isClosed() && l.proxy.Connections() == 0 {
			l.reused = true
			l.proxy.Heal()
			l.proxy.SetDelay(0)
			return &link{proxy: l.proxy}
		}
	}
	return &link{proxy: testenv.NewProxy(s.t, s.server.Addr(), nil)}
}

func (s *session) isClosed() bool {
	s.closing.Lock()
	defer s.closing.Unlock()
	return s.gone
}

func (s *store) link(session driver.Session) *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.links[session]
}

// wire plays faults on single requests, below the client library.
type wire struct {
	mu     sync.Mutex
	next   func(method string, request any) bool
	fault  func(ctx context.Context, method string, request any, send func() error)
	counts map[string]int
}

// play plays a fault on the next request that matches.
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

// total returns how many requests about queues were sent. It does not count the
// requests that begin, keep or end a session.
func (w *wire) total() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts["/etcdserverpb.KV/Txn"] + w.counts["/etcdserverpb.KV/Range"] + w.counts["/etcdserverpb.KV/DeleteRange"]
}

// watchStreams has the streams for watches of a session.
type watchStreams struct {
	streams sync.Map
	events  atomic.Int64 // how many were received
}

// silence makes the session receive nothing more on the streams that exist. This
// happens if one server of an ensemble is stopped: it may serve the watches of a
// session, while the other servers still answer the requests of that session.
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

// overtake makes the streams that exist receive no more events, but still the answers
// to requests for progress. Some servers send such an answer before older events.
func (w *watchStreams) overtake() {
	w.streams.Range(func(stream, _ any) bool {
		stream.(*silentStream).noEvents.Store(true)
		return true
	})
}

// progress returns the latest revision of a reply that a stream has received.
func (w *watchStreams) progress() (revision int64) {
	w.streams.Range(func(stream, _ any) bool {
		revision = max(revision, stream.(*silentStream).revision.Load())
		return true
	})
	return revision
}

// silentStream is a stream that may fall silent.
type silentStream struct {
	grpc.ClientStream
	silent, noEvents atomic.Bool
	events           *atomic.Int64
	revision         atomic.Int64 // of the latest reply that was received
}

func (s *silentStream) RecvMsg(m any) error {
	for {
		if err := s.ClientStream.RecvMsg(m); err != nil {
			return err
		}
		reply := m.(*pb.WatchResponse)
		if s.silent.Load() || s.noEvents.Load() && len(reply.Events) > 0 {
			reply.Reset()
			continue
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
		_ = send() // if this fails, the request is lost instead of the reply
		l.proxy.DropConnections()
	})
}

// holdRequest loses a request, and returns a function that sends it by another
// client.
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
			switch r := request.(type) { // etcd may refuse the request
			case *pb.TxnRequest:
				_, _ = client.Txn(t.Context(), r)
			case *pb.DeleteRangeRequest:
				_, _ = client.DeleteRange(t.Context(), r)
			}
		default:
			t.Log("no request was held")
		}
	}
}

// matching recognises the requests of a kind by what the driver puts into them.
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
	}
	return faults.OpReplace
}

// rawClients holds a client of each server, which all tests share.
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
