package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock/driver"
)

// Options are the settings for [NewConnector]. A zero field has the default
// value of the corresponding parameter in a data source name.
type Options struct {
	// SessionTimeout is how long the store keeps a session without heartbeats:
	// 100 ms to 24 h. Zero means 10 s.
	SessionTimeout time.Duration
	// Namespace is the prefix of all keys, "dlock" by default.
	Namespace string
	// Grace is how long no lock is granted after a fail-over or restart: 100 ms
	// to 24 h, and at least SessionTimeout, which is the default. See the
	// package documentation.
	Grace time.Duration
	// Replicas is how many replicas have to confirm each heartbeat.
	Replicas int
	// EmptyIsNew skips the grace if the namespace has no data.
	EmptyIsNew bool
	// PoolSize limits the calls that a session may have in flight. Zero means 8.
	PoolSize int
}

// NewConnector returns a connector for the servers of an existing
// *redis.Client, including one from redis.NewFailoverClient, or
// *redis.ClusterClient.
//
// Each session opens up to PoolSize+7 connections of its own, with the client's
// addresses, login, database, TLS configuration, dialer, OnConnect and
// timeouts. Closing the client leaves the sessions open, and vice versa.
//
// The client's hooks, Limiter, retries and routing to replicas have no effect.
// If its dialer ignores the end of its context, as the go-redis dialer does
// with TLS, a dial may outlast Close by the dial timeout.
//
// NewConnector does no I/O. It returns an error if an option is invalid, if the
// client has another type, such as *redis.Ring, or if it comes from
// redis.NewFailoverClusterClient, whose reads may go to replicas.
func NewConnector(client redis.UniversalClient, options Options) (driver.Connector, error) {
	s := &settings{timeout: defaultTimeout, namespace: defaultNamespace, emptyNew: options.EmptyIsNew}
	own := s.parameters()
	for _, o := range []struct {
		field, parameter, value string
		given                   bool
	}{
		{"SessionTimeout", "session_timeout", options.SessionTimeout.String(), options.SessionTimeout != 0},
		{"Namespace", "namespace", options.Namespace, options.Namespace != ""},
		{"Grace", "grace", options.Grace.String(), options.Grace != 0},
		{"Replicas", "replicas", strconv.Itoa(options.Replicas), true},
	} {
		if !o.given {
			continue
		}
		if err := own[o.parameter](o.value); err != nil {
			return nil, fmt.Errorf("redisdriver: Options.%s: %w", o.field, err)
		}
	}
	if s.grace != 0 && s.grace < s.timeout {
		return nil, errors.New("redisdriver: Options.Grace is less than SessionTimeout: leases have to end before it does")
	}
	if options.PoolSize < 0 || options.PoolSize > maxPool {
		return nil, fmt.Errorf("redisdriver: Options.PoolSize is not between 1 and %d", maxPool)
	}
	o, err := s.optionsOf(client)
	if err != nil {
		return nil, fmt.Errorf("redisdriver: %w", err)
	}
	s.dialer = o.Dialer
	o.PoolSize, o.Protocol = options.PoolSize, 2
	o.Limiter, o.PushNotificationProcessor = nil, nil
	for _, d := range []*time.Duration{&o.DialTimeout, &o.ReadTimeout, &o.WriteTimeout} {
		*d = max(*d, 0) // negative means no timeout; use the default instead
	}
	if err := s.keep(o); err != nil {
		return nil, fmt.Errorf("redisdriver: %w", err)
	}
	return &connector{settings: s, addrs: s.addrs}, nil
}

func (s *settings) optionsOf(client redis.UniversalClient) (*redis.Options, error) {
	switch c := client.(type) {
	case *redis.Client:
		if c == nil {
			break
		}
		o := *c.Options()
		s.addrs = []string{o.Addr}
		return &o, nil
	case *redis.ClusterClient:
		if c == nil {
			break
		}
		o := c.Options()
		if o.ClusterSlots != nil {
			return nil, errors.New("the ClusterClient has a function ClusterSlots, as that of redis.NewFailoverClusterClient has: " +
				"for Sentinel, pass a client of redis.NewFailoverClient")
		}
		if len(o.Addrs) == 0 {
			return nil, errors.New("the ClusterClient has no addresses")
		}
		s.addrs = append(s.addrs, o.Addrs...)
		return ofCluster(o), nil
	case *redis.Ring:
		return nil, errors.New("a Ring spreads keys over servers that know nothing of each other's locks: pass a client of one server")
	case nil:
	default:
		return nil, fmt.Errorf("the client is a %T: pass a *redis.Client or a *redis.ClusterClient", client)
	}
	return nil, errors.New("the client is nil")
}

func ofCluster(c *redis.ClusterOptions) *redis.Options {
	o := &redis.Options{
		ClientName: c.ClientName, Dialer: c.Dialer, OnConnect: c.OnConnect, TLSConfig: c.TLSConfig,
		Username: c.Username, Password: c.Password, CredentialsProvider: c.CredentialsProvider,
		CredentialsProviderContext: c.CredentialsProviderContext, StreamingCredentialsProvider: c.StreamingCredentialsProvider,
		DialTimeout: c.DialTimeout, ReadTimeout: c.ReadTimeout, WriteTimeout: c.WriteTimeout,
	}
	if o.Dialer == nil {
		of := *o // a copy, because keep clears o.TLSConfig
		o.Dialer = redis.NewDialer(&of)
	}
	return o
}

// dialLimit is how many dials a session may have in flight, abandoned or not.
const dialLimit = 64

// dialByClient dials with the existing client's dialer, but returns when ctx
// ends even if that dialer does not.
func (l *link) dialByClient(ctx context.Context, network, addr string) (net.Conn, error) {
	select {
	case l.dials <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	dialed, failed := make(chan net.Conn), make(chan error, 1)
	go func() {
		defer func() { <-l.dials }()
		conn, err := l.settings.dialer(ctx, network, addr)
		if err != nil {
			failed <- err
			return
		}
		select {
		case dialed <- conn:
		case <-ctx.Done():
			_ = conn.Close()
		}
	}()
	select {
	case conn := <-dialed:
		return conn, nil
	case err := <-failed:
		return nil, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
