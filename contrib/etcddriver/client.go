package etcddriver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// Options are the settings for [NewConnector]. A zero field has the default
// value of the corresponding parameter in a data source name.
type Options struct {
	// SessionTimeout is how long etcd keeps a session without heartbeats, in
	// whole seconds from 1 s to 24 h. Zero means 10 s.
	SessionTimeout time.Duration
	// Prefix is the prefix of all keys, "dlock" by default.
	Prefix string
	// TLS must be the clientv3.Config.TLS that the client was created with,
	// because the client does not expose it.
	TLS *tls.Config
	// Password, if not nil, returns the password for each login of the client's
	// user, instead of the client's Password.
	Password func(ctx context.Context) (string, error)
}

// NewConnector returns a connector for the cluster that an existing client
// uses. Each new session takes over the client's current endpoints, user and
// password, but opens its own connections.
//
// Closing the client leaves sessions open, and vice versa. Sessions ignore its
// dial options, interceptors and call options, which may hide a hung server.
//
// NewConnector does no I/O. It returns an error for an invalid option, an
// endpoint other than host:port, http:// or https://, or an https:// endpoint
// without Options.TLS.
func NewConnector(client *clientv3.Client, options Options) (driver.Connector, error) {
	if client == nil {
		return nil, errors.New("etcddriver: the client is nil")
	}
	s := newSettings()
	if options.SessionTimeout != 0 {
		if err := s.setTimeout(options.SessionTimeout.String()); err != nil {
			return nil, fmt.Errorf("etcddriver: Options.SessionTimeout: %w", err)
		}
	}
	if options.Prefix != "" {
		if err := driver.CheckQueue(options.Prefix); err != nil {
			return nil, fmt.Errorf("etcddriver: Options.Prefix: %w", err)
		}
		s.prefix = options.Prefix
	}
	s.tls, s.tlsConfig = options.TLS != nil, options.TLS
	if err := s.secret.Check(false, options.Password); err != nil {
		return nil, fmt.Errorf("etcddriver: Options: %w", err)
	}
	c := &connector{settings: s, existing: client, trust: new(session.Trust)}
	if _, err := c.following(); err != nil {
		return nil, err
	}
	return c, nil
}

// following returns a connector for a new session, with the existing client's
// current login and endpoints.
func (c *connector) following() (*connector, error) {
	s := *c.settings
	own := &connector{&s, c.existing, c.dial, c.trust, new(seen), &conns{open: make(map[*conn]time.Time)}}
	own.conns.dials.Store(s.turns.Add(1))
	if c.existing == nil {
		return own, nil
	}
	s.user = c.existing.Username
	if !s.secret.Changes() {
		s.password = func(context.Context) (string, error) { return c.existing.Password, nil }
		if c.existing.Password == "" { // the client does not log in
			s.user = ""
		}
	}
	for _, e := range c.existing.Endpoints() {
		addr, secure := strings.CutPrefix(e, "https://")
		addr = strings.TrimPrefix(addr, "http://")
		host, port, _ := net.SplitHostPort(addr)
		if _, err := strconv.ParseUint(port, 10, 16); err != nil || host == "" {
			return nil, fmt.Errorf("etcddriver: the client has the endpoint %q, and only host:port, http://host:port and https://host:port can be used", e)
		}
		if secure && !s.tls {
			return nil, fmt.Errorf("etcddriver: the client has the endpoint %q: set Options.TLS to its TLS configuration", e)
		}
		s.endpoints = append(s.endpoints, addr)
	}
	if len(s.endpoints) == 0 {
		return nil, errors.New("etcddriver: the client has no endpoints")
	}
	return own, nil
}

// lacksTLS reports whether the existing client uses TLS without Options.TLS.
func (c *connector) lacksTLS(ctx context.Context) bool {
	if c.existing == nil || c.settings.tls {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, c.settings.requestTimeout())
	defer cancel()
	var p peer.Peer
	_, _ = pb.NewKVClient(c.existing.ActiveConnection()).Range(ctx, &pb.RangeRequest{Key: []byte(c.settings.root()), CountOnly: true}, grpc.Peer(&p))
	_, secure := p.AuthInfo.(credentials.TLSInfo)
	return secure
}
