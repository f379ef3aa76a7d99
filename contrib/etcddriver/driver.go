package etcddriver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

func init() { dlock.Register("etcd", Driver{}) }

// Driver implements [driver.Driver] for etcd. Its zero value is registered as
// "etcd". For a custom TLS configuration, create a Driver directly:
//
//	connector, err := etcddriver.Driver{TLS: config}.OpenConnector("etcd://etcd1/locks")
//	client := dlock.NewClient(connector)
//
// A Driver is safe for concurrent use.
type Driver struct {
	// TLS, if not nil, is used for all connections, as if the data source name
	// had tls=true. The data source name must then name no TLS files.
	TLS *tls.Config
	// Password, if not nil, returns the password for each login of the user in
	// the data source name, which must then contain no password.
	Password func(ctx context.Context) (string, error)
}

// OpenConnector parses a data source name, described in the package
// documentation. It does no I/O. The error names the invalid part but never
// quotes the password.
//
// Each connection reads the TLS files again, and each login the password file.
// Errors from files, certificates, user or password match driver.ErrUnavailable
// only once a session has begun.
func (d Driver) OpenConnector(dsn string) (driver.Connector, error) {
	s, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	if err := s.secret.Check(false, d.Password); err != nil {
		return nil, fmt.Errorf("etcddriver: dsn: %w", err)
	}
	if d.TLS != nil {
		if s.files.CA+s.files.Cert != "" {
			return nil, errors.New("etcddriver: dsn: tls_ca, tls_cert and tls_key are not for a Driver that has a TLS configuration")
		}
		s.tls, s.tlsConfig = true, d.TLS
	}
	return &connector{settings: s, trust: new(session.Trust)}, nil
}

type connector struct {
	settings *settings
	existing *clientv3.Client // client passed to NewConnector, or nil
	// dial holds additional gRPC options, with which tests inject faults.
	dial  []grpc.DialOption
	trust *session.Trust

	// Each session has a copy of the connector, with its own seen and conns.
	seen  *seen
	conns *conns
}

// Observe implements [driver.Observer]. It creates no lease, so it also works
// on a store whose quota is used up.
func (c *connector) Observe(ctx context.Context) (driver.Session, error) {
	return c.trust.Result(c.begin(ctx, false))
}

func (c *connector) dialed(ctx context.Context, writes bool) (*connector, *clientv3.Client, error) {
	c, err := c.following()
	if err != nil {
		return nil, nil, err
	}
	client, err := c.client(ctx, c.settings.user)
	if err != nil {
		return nil, nil, c.connectError(ctx, err)
	}
	if err := c.checkLayout(ctx, client, writes); err != nil {
		client.Close()
		return nil, nil, err
	}
	return c, client, nil
}

// checkLayout rejects a prefix with another layout version. Its read also tests
// the user's permission, which creating a lease does not.
func (c *connector) checkLayout(ctx context.Context, client *clientv3.Client, writes bool) error {
	key := c.settings.layoutKey()
	reply, err := client.Get(ctx, key)
	if err != nil {
		return c.connectError(ctx, err)
	}
	stored := reply.Kvs
	if len(stored) == 0 && writes {
		put, err := client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
			Then(clientv3.OpPut(key, layout)).Else(clientv3.OpGet(key)).Commit()
		if err == nil {
			stored = put.Responses[0].GetResponseRange().GetKvs()
		} else if code(err) != codes.PermissionDenied { // a read-only user can't store the version
			return c.connectError(ctx, err)
		}
	}
	if len(stored) == 0 {
		return nil
	}
	what := fmt.Sprintf("etcddriver: connect: the keys that begin with %q", c.settings.root())
	return session.CheckLayout(what, string(stored[0].Value), layout)
}

// Connect creates a lease and a client for it.
func (c *connector) Connect(ctx context.Context) (driver.Session, error) {
	return c.trust.Result(c.begin(ctx, true))
}

func (c *connector) begin(ctx context.Context, writes bool) (*session.Session, error) {
	c, client, err := c.dialed(ctx, writes)
	if err != nil {
		return nil, err
	}
	if !writes {
		b := newBackend(c, client, &clientv3.LeaseGrantResponse{ID: -1}) // no lease has this ID
		s, err := session.Observe(ctx, b, func() { client.Close() }, b.config(c.settings.timeout))
		if err != nil {
			client.Close()
		}
		return s, err
	}
	sent := driver.Now()
	grant, err := client.Grant(ctx, int64(c.settings.timeout/time.Second))
	if err != nil {
		client.Close()
		return nil, c.connectError(ctx, err)
	}
	b := newBackend(c, client, grant)
	s, err := session.Connect(ctx, b, b.config(b.timeout))
	if err != nil {
		client.Close()
		return nil, err
	}
	if err := s.Lease().CountFrom(sent, 0); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("etcddriver: connect: the reply came too late: %w", err)
	}
	return s, nil
}

func (b *backend) config(timeout time.Duration) session.Config {
	return session.Config{Name: "etcddriver", ID: sessionName(b.id), Timeout: timeout,
		Server: func() string { return strings.Join(b.settings.endpoints, ",") }, Shortest: 20 * time.Millisecond,
		Requests: math.MaxInt, // one connection carries any number of requests
	}
}

// connectError prefers the error of a TLS handshake to gRPC's, which may say
// only that the connection broke.
func (c *connector) connectError(ctx context.Context, err error) error {
	if code(err) == codes.Unavailable {
		if c.lacksTLS(ctx) {
			return errors.New("etcddriver: connect: the client uses TLS: set Options.TLS to its TLS configuration")
		}
		err = cmp.Or(c.settings.refusedCertificate(ctx), err)
	}
	if code(err) == codes.PermissionDenied {
		return fmt.Errorf("etcddriver: connect: %w", denied(err, fmt.Sprintf("that begin with %q", c.settings.root())))
	}
	return fmt.Errorf("etcddriver: connect: %w", classify(ctx, c.settings.locate(err)))
}

// locate adds all servers' addresses to err, which has at most one of them.
func (s *settings) locate(err error) error {
	if errors.As(err, new(rpctypes.EtcdError)) || isPermanent(err) || errors.Is(err, driver.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("no answer of etcd at %s: %w", strings.Join(s.endpoints, ","), err)
}

// client returns a new etcd client, which stays usable after ctx ends.
func (c *connector) client(ctx context.Context, user string) (*clientv3.Client, error) {
	config, err := c.settings.loadTLS()
	if err != nil {
		return nil, err
	}
	scheme, dial := "http://", c.dialOptions()
	if config != nil {
		scheme = "https://"
		dial = append(dial, grpc.WithTransportCredentials(renewed{credentials.NewTLS(config), c.settings}))
	}
	var urls []string
	for _, e := range c.settings.endpoints {
		urls = append(urls, scheme+e)
	}
	life, end := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, end)
	client, err := clientv3.New(clientv3.Config{
		Context:     life, // cancelled when the client is closed
		Endpoints:   urls,
		Username:    user,
		Password:    user, // intercept sends the current password instead
		TLS:         config,
		Logger:      zap.NewNop(), // the default logs to standard error
		DialOptions: append(dial, c.dial...),

		DialKeepAliveTime:    10 * time.Second, // the minimum that gRPC allows
		DialKeepAliveTimeout: c.settings.requestTimeout(),
		MaxUnaryRetries:      2, // for reads; callers retry other requests
	})
	if stop() || err != nil {
		if err != nil {
			end()
		}
		return client, err
	}
	client.Close()
	return nil, ctx.Err()
}

// dialOptions overrides defaults, such as a reconnection backoff that may
// exceed the session timeout.
func (c *connector) dialOptions() []grpc.DialOption {
	pauses := grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{
			BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
			MaxDelay: min(c.settings.timeout/8, time.Second),
		},
		MinConnectTimeout: c.settings.requestTimeout(),
	})
	return []grpc.DialOption{pauses, grpc.WithContextDialer(c.connect), grpc.WithChainUnaryInterceptor(c.intercept),
		grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window),
		grpc.WithDisableServiceConfig(), // the etcd client's config names another balancer
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"` + answering{}.Name() + `": {}}]}`)}
}

// window is the flow-control window in bytes. It is fixed, because gRPC would
// otherwise ping for nearly every message.
const window = 1 << 20

// intercept handles each unary request. Without a reachable server, requests
// fail at once, because a timeout would hide the reason.
func (c *connector) intercept(
	ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	if login, ok := request.(*pb.AuthenticateRequest); ok {
		password, err := c.settings.password(ctx)
		if err != nil {
			return err
		}
		login.Password = password
	}
	var at peer.Peer
	opts = append(opts, grpc.WaitForReady(false), grpc.Peer(&at))
	return c.askAnother(ctx, request, func(ctx context.Context) error {
		before, sent := c.seen.revision.Load(), time.Now()
		err := c.logIn(ctx, reply, invoke(ctx, method, request, reply, conn, opts...))
		if err == nil {
			err = c.seen.check(before, reply)
		}
		c.conns.closeSilent(ctx, sent, at.Addr)
		// On these codes, the client library would repeat a request that may
		// have reached etcd.
		if c := status.Code(err); ctx.Err() == nil && (c == codes.Canceled || c == codes.DeadlineExceeded) {
			return status.Error(codes.Unavailable, err.Error())
		}
		return err
	})
}

// askAnother repeats a request that a learner refused. Requests that are safe
// to repeat are also retried after a timeout.
func (c *connector) askAnother(ctx context.Context, request any, send func(context.Context) error) error {
	safe := false
	switch request.(type) {
	case *pb.AuthenticateRequest, *pb.RangeRequest, *pb.LeaseGrantRequest:
		safe = true
	case *pb.LeaseRevokeRequest: // with one server, wait until ctx ends
		safe = len(c.settings.endpoints) > 1
	}
	ask := func(ctx context.Context) (err error) {
		for range 100 {
			if err = send(ctx); !byLearner(err) || !session.Sleep(ctx, 20*time.Millisecond) {
				break
			}
		}
		return err
	}
	for tries := max(1, len(c.settings.endpoints)-1); safe && tries > 0; tries-- {
		limited, cancel := context.WithTimeout(ctx, c.settings.requestTimeout())
		err := ask(limited)
		late := err != nil && limited.Err() != nil || outOfTime(err)
		cancel()
		if !late || ctx.Err() != nil {
			return err
		}
	}
	return ask(ctx)
}

// logIn repeats a failed login with a fresh client, because etcd 3.4 rejects
// logins that carry an invalid token.
func (c *connector) logIn(ctx context.Context, reply any, err error) error {
	answer, isLogin := reply.(*pb.AuthenticateResponse)
	if !isLogin || !errors.Is(rpctypes.Error(err), rpctypes.ErrInvalidAuthToken) {
		return err
	}
	other, err := c.client(ctx, "")
	if err != nil {
		return err
	}
	defer other.Close()
	got, err := other.Authenticate(ctx, c.settings.user, "") // intercept adds the password
	if err == nil {
		answer.Header, answer.Token = got.Header, got.Token
	}
	return err
}

func (s *settings) requestTimeout() time.Duration {
	return min(max(s.timeout/4, time.Second), 2500*time.Millisecond)
}
