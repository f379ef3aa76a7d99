package etcddriver

import (
	"context"
	"net"
	"slices"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/dlock-go/dlock/driver"
)

// Isolate implements [driver.Isolator] by appending to the prefix of all keys.
func (c *connector) Isolate(i driver.Isolation) (driver.Connector, func(context.Context) error, error) {
	s := *c.settings
	s.prefix += "/" + i.Name
	if i.SessionTimeout > 0 {
		s.timeout = i.SessionTimeout
	}
	part := &connector{settings: &s, existing: c.existing, dial: slices.Clone(c.dial), trusted: new(atomic.Bool)}
	if i.Dial != nil {
		part.dial = append(part.dial, grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return i.Dial(ctx, "tcp", addr) }))
	}
	remove := func(ctx context.Context) error {
		c, err := c.following()
		if err != nil {
			return err
		}
		client, err := c.client(ctx)
		if err != nil {
			return c.connectError(ctx, err)
		}
		defer client.Close()
		_, err = client.Delete(ctx, s.root(), clientv3.WithPrefix())
		return classify(ctx, err)
	}
	return part, remove, nil
}

// Lease returns the session's lease, for the conformance tests.
func (s *session) Lease() *driver.Lease { return s.lease }
