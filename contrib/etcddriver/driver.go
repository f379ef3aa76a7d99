package etcddriver

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

func init() { dlock.Register("etcd", Driver{}) }

// Driver is the etcd driver. Its zero value is registered as "etcd". An
// application that has a TLS configuration of its own makes a Driver of its own:
//
//	connector, err := etcddriver.Driver{TLS: config}.OpenConnector("etcd://etcd1/locks")
//	client := dlock.NewClient(connector)
//
// A Driver is safe for use by many goroutines.
type Driver struct {
	// TLS, if set, is the configuration of all connections, as if the data source
	// name said tls=true. OpenConnector then refuses the tls_ parameters that name
	// files.
	TLS *tls.Config
}

// OpenConnector parses a data source name, whose form the package documentation
// describes. It does no I/O and does not block. Its error names the part that is
// wrong and never repeats the password.
//
// Connect of the connector reads the TLS files, so that it uses renewed
// certificates. It fails if they cannot be read, if a certificate is refused, or
// if the user or the password is wrong. Such an error does not match
// driver.ErrUnavailable before the first session of the connector has begun. After
// that, an error of certificates does match it, because files are replaced in more
// than one step.
func (d Driver) OpenConnector(dsn string) (driver.Connector, error) {
	s, err := parseDSN(dsn)
	if err != nil {
		return nil, err
	}
	if d.TLS != nil {
		if s.files.CA+s.files.Cert != "" {
			return nil, errors.New("etcddriver: dsn: tls_ca, tls_cert and tls_key are not for a Driver that has a TLS configuration")
		}
		s.tls, s.tlsConfig = true, d.TLS
	}
	return &connector{settings: s}, nil
}

type connector struct {
	settings *settings
	// dial holds more options for connections. Tests play faults with them.
	dial    []grpc.DialOption
	trusted atomic.Bool // a session has begun, so the certificates were right then
}

// Connect begins a session: a lease, and a client of its own.
func (c *connector) Connect(ctx context.Context) (driver.Session, error) {
	client, err := c.client(ctx)
	if err != nil {
		return nil, c.connectError(ctx, err)
	}
	// This read shows whether the user may read the keys. A lease needs no permission.
	if _, err := client.Get(ctx, c.settings.root(), clientv3.WithCountOnly()); err != nil {
		client.Close()
		return nil, c.connectError(ctx, err)
	}
	sent := driver.Now()
	grant, err := client.Grant(ctx, int64(c.settings.timeout/time.Second))
	if err != nil {
		client.Close()
		return nil, c.connectError(ctx, err)
	}
	s := newSession(c, client, grant)
	if !s.lease.Renew(sent) {
		s.lease.End(errExpired)
		client.Close()
		return nil, fmt.Errorf("etcddriver: connect: %w: the reply came too late", driver.ErrUnavailable)
	}
	c.trusted.Store(true)
	s.start()
	return s, nil
}

// connectError returns the error of Connect. If a certificate is refused, the error is
// the reason for that, and it may pass only if certificates were right before.
func (c *connector) connectError(ctx context.Context, err error) error {
	if code(err) == codes.Unavailable {
		err = cmp.Or(c.settings.refusedCertificate(ctx), err)
	}
	if errors.As(err, new(certificateError)) && c.trusted.Load() {
		return fmt.Errorf("etcddriver: connect: %w: %w", driver.ErrUnavailable, err)
	}
	if code(err) == codes.PermissionDenied {
		return fmt.Errorf("etcddriver: connect: %w", denied(err, fmt.Sprintf("that begin with %q", c.settings.root())))
	}
	return fmt.Errorf("etcddriver: connect: %w", classify(ctx, c.settings.locate(err)))
}

// locate names the servers in an error that is no answer of etcd. The client library
// names at most one of them, and none if ctx has ended.
func (s *settings) locate(err error) error {
	if errors.As(err, new(rpctypes.EtcdError)) || isPermanent(err) {
		return err
	}
	return fmt.Errorf("no answer of etcd at %s: %w", strings.Join(s.endpoints, ","), err)
}

// client returns a client of the store. If there is a user, it asks the store for
// a token first. The client does not end when ctx ends.
func (c *connector) client(ctx context.Context) (*clientv3.Client, error) {
	return c.clientOf(ctx, c.settings.user, c.settings.password())
}

func (c *connector) clientOf(ctx context.Context, user, password string) (*clientv3.Client, error) {
	config, err := c.settings.loadTLS()
	if err != nil {
		return nil, certificateError{err}
	}
	scheme, dial := "http://", c.dialOptions()
	if config != nil {
		scheme = "https://"
		if config.ServerName != "" {
			dial = append(dial, grpc.WithTransportCredentials(namedServer{credentials.NewTLS(config), config.ServerName}))
		}
	}
	life, end := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, end)
	client, err := clientv3.New(clientv3.Config{
		Context:     life, // Close of the client ends it
		Endpoints:   withScheme(scheme, c.settings.endpoints),
		Username:    user,
		Password:    password,
		TLS:         config,
		Logger:      zap.NewNop(), // otherwise the client logs to standard error
		DialOptions: append(dial, c.dial...),

		DialKeepAliveTime:    10 * time.Second, // gRPC allows no less
		DialKeepAliveTimeout: c.settings.requestTimeout(),
		MaxUnaryRetries:      2, // for reads; the callers of a session repeat the rest
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

// dialOptions limits the pauses between attempts to connect, which gRPC raises to two
// minutes, longer than a session. It sets the window of the connections. It also
// makes requests fail while no server can be reached. The client library lets them
// wait, and their errors then have no reason.
func (c *connector) dialOptions() []grpc.DialOption {
	pauses := grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{
			BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2,
			MaxDelay: min(c.settings.timeout/8, time.Second),
		},
		MinConnectTimeout: c.settings.requestTimeout(),
	})
	return append(balanced(),
		pauses, grpc.WithChainUnaryInterceptor(failFast, c.askAnother, sendOnce, c.logIn), grpc.WithChainStreamInterceptor(new(openOnce).intercept),
		grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window),
	)
}

// window is how many bytes a server may send before the session has read them. If it
// is not set, gRPC computes it, and sends a ping for that after nearly every message
// that it receives.
const window = 1 << 20

func failFast(
	ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	return invoke(ctx, method, request, reply, conn, append(opts, grpc.WaitForReady(false))...)
}

// askAnother asks another server if one does not answer a request that begins a
// session. No other request may be sent again, or it takes the whole time that a
// call has.
func (c *connector) askAnother(
	ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	switch request.(type) {
	case *pb.AuthenticateRequest, *pb.RangeRequest, *pb.LeaseGrantRequest:
		for range len(c.settings.endpoints) - 1 {
			limited, cancel := context.WithTimeout(ctx, c.settings.requestTimeout())
			err := invoke(limited, method, request, reply, conn, opts...)
			late := limited.Err() != nil || outOfTime(err)
			cancel()
			if err == nil || !late || ctx.Err() != nil {
				return err
			}
		}
	}
	return invoke(ctx, method, request, reply, conn, opts...)
}

// sendOnce keeps the client library from sending a request again that may have
// arrived. The library does so if ctx lives and the answer says that the request was
// cancelled or took too long. A proxy before the server gives such answers.
func sendOnce(
	ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	err := invoke(ctx, method, request, reply, conn, opts...)
	if c := status.Code(err); ctx.Err() == nil && (c == codes.Canceled || c == codes.DeadlineExceeded) {
		return status.Error(codes.Unavailable, err.Error())
	}
	return err
}

// logIn logs in by another client if the server refuses that because of a token. The
// client library sends its old token with the request for a new one. If the old token
// is not valid any more, etcd 3.4 refuses the request, and the library makes the same
// request again and again.
func (c *connector) logIn(
	ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	err := invoke(ctx, method, request, reply, conn, opts...)
	answer, isLogin := reply.(*pb.AuthenticateResponse)
	if !isLogin || !errors.Is(rpctypes.Error(err), rpctypes.ErrInvalidAuthToken) {
		return err
	}
	other, err := c.clientOf(ctx, "", "")
	if err != nil {
		return err
	}
	defer other.Close()
	got, err := other.Authenticate(ctx, c.settings.user, c.settings.password())
	if err == nil {
		answer.Header, answer.Token = got.Header, got.Token
	}
	return err
}

// requestTimeout returns how long a request may take. After that the driver takes
// the request for lost, so that its caller can try another server.
func (s *settings) requestTimeout() time.Duration {
	return min(max(s.timeout/4, time.Second), 2500*time.Millisecond)
}

func withScheme(scheme string, endpoints []string) (urls []string) {
	for _, e := range endpoints {
		urls = append(urls, scheme+e)
	}
	return urls
}
