package natsdriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// link is one connection of a session.
type link struct {
	*nats.Conn
	silence   *time.Timer // closes the connection if no leader answers
	confirmed atomic.Bool // whether confirm has succeeded on this connection
}

// client returns the connection, and makes it if there is none.
func (kv *kv) client(ctx context.Context) (*link, error) {
	select {
	case kv.turn <- struct{}{}:
		defer func() { <-kv.turn }()
	case <-ctx.Done():
		return nil, session.Refused(fmt.Errorf("%w: no connection: %w", driver.ErrUnavailable, ctx.Err()))
	}
	if kv.link != nil && !kv.link.IsClosed() {
		return kv.link, nil
	}
	l, err := kv.dial(ctx)
	kv.avoid = ""
	if err != nil {
		return nil, session.Refused(err)
	}
	kv.link, kv.found = l, append(kv.found, l.DiscoveredServers()...)
	if len(l.Servers()) > 1 {
		kv.avoid = l.ConnectedAddr()
	}
	return l, nil
}

// dial connects to one of the servers. Asynchronous errors close the
// connection, so that no request waits in vain.
func (kv *kv) dial(ctx context.Context) (*link, error) {
	o, err := kv.settings.options(ctx)
	if err != nil {
		return nil, session.Login(err)
	}
	life, end := context.WithCancel(context.Background())
	defer context.AfterFunc(ctx, end)()
	o.Servers = slices.Concat(o.Servers, kv.found)
	o.Name = cmp.Or(o.Name, "dlock")
	o.Timeout = max(kv.settings.timeout/8, time.Second)
	o.CustomDialer = dialer{life, o, kv.avoid}
	o.AllowReconnect, o.RetryOnFailedConnect, o.UseOldRequestStyle = false, false, false
	o.DisconnectedErrCB, o.DisconnectedCB, o.ConnectedCB, o.ClosedCB, o.DiscoveredServersCB, o.LameDuckModeHandler = nil, nil, nil, nil, nil, nil
	o.AsyncErrorCB = func(nc *nats.Conn, _ *nats.Subscription, _ error) { nc.Close() }
	l := &link{silence: time.AfterFunc(kv.settings.requestTime(), end)}
	if l.Conn, err = o.Connect(); err == nil {
		err = checkVersion(l.ConnectedServerVersion())
	}
	if err != nil {
		end()
		return nil, dialError(err)
	}
	return l, nil
}

// explain returns the error for a request that got no answer.
func (l *link) explain(err error, subject string) error {
	denied := fmt.Errorf("the user lacks a permission, see the package documentation of natsdriver: %w", cmp.Or(l.LastError(), err))
	lacks := func(what string) bool {
		return errors.Is(denied, nats.ErrPermissionViolation) && strings.Contains(denied.Error(), what)
	}
	switch {
	case lacks(`Publish to "` + subject + `"`):
		return session.Refused(denied)
	case lacks("Subscription to"): // the answer is lost
		return denied
	case errors.Is(err, nats.ErrMaxPayload):
		return session.Refused(fmt.Errorf("the queue has too many nodes for the server's max_payload: %w", err))
	case errors.Is(err, nats.ErrNoResponders):
		return session.Refused(fmt.Errorf("%w: no stream listens, or JetStream is off: %w", driver.ErrUnavailable, err))
	}
	return fmt.Errorf("%w: no answer: %w", driver.ErrUnavailable, err)
}

// dialer makes connections that close when the context life ends.
type dialer struct {
	life  context.Context
	of    nats.Options
	avoid string
}

func (d dialer) Dial(network, address string) (made net.Conn, err error) {
	switch {
	case address == d.avoid:
		return nil, errors.New("the last connection to this server has failed")
	case d.of.CustomDialer != nil:
		made, err = d.of.CustomDialer.Dial(network, address)
	default:
		made, err = (&net.Dialer{Timeout: d.of.Timeout}).DialContext(d.life, network, address)
	}
	if err == nil {
		context.AfterFunc(d.life, func() { _ = made.Close() })
	}
	return made, err
}
