package natsdriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// link is the connection of a session, which the client library makes again
// when it breaks.
type link struct {
	nc  *nats.Conn
	end context.CancelFunc // ends dials that are under way

	mu      sync.Mutex
	up      chan struct{}                         // closed while there is a connection
	waiting map[*context.CancelCauseFunc][]string // of requests under way, with their subjects
}

var errBroken = errors.New("the connection broke")

// dial connects to one of the servers.
func dial(ctx context.Context, s *settings) (*link, error) {
	o, err := s.options()
	if err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.Background())
	defer context.AfterFunc(ctx, end)()
	l := &link{end: end, up: make(chan struct{}), waiting: make(map[*context.CancelCauseFunc][]string)}
	close(l.up)
	o.Name = cmp.Or(o.Name, "dlock")
	o.CustomDialer = dialer{life, o}
	o.Timeout = max(s.timeout/8, time.Second)
	o.AllowReconnect, o.MaxReconnect, o.RetryOnFailedConnect = true, -1, false
	o.ReconnectWait, o.ReconnectJitter, o.ReconnectJitterTLS = 100*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond
	o.CustomReconnectDelayCB = nil
	o.ReconnectBufSize = -1 // nothing is sent later than asked
	o.IgnoreAuthErrorAbort = true
	o.PingInterval, o.MaxPingsOut = s.timeout/4, 1
	o.UseOldRequestStyle, o.NoCallbacksAfterClientClose = false, true
	o.ClosedCB, o.DisconnectedCB, o.ConnectedCB, o.DiscoveredServersCB, o.LameDuckModeHandler, o.ReconnectErrCB = nil, nil, nil, nil, nil, nil
	o.DisconnectedErrCB = func(*nats.Conn, error) { l.broken() }
	o.ReconnectedCB = func(*nats.Conn) { l.mended() }
	o.AsyncErrorCB = func(_ *nats.Conn, _ *nats.Subscription, err error) { l.denied(err) }
	if l.nc, err = o.Connect(); err != nil {
		end()
		return nil, err
	}
	return l, nil
}

func (l *link) close() {
	l.nc.Close()
	l.end()
}

// broken fails all requests under way, whose answers will not arrive.
func (l *link) broken() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up = make(chan struct{})
	for fail := range l.waiting {
		(*fail)(fmt.Errorf("%w: %w", driver.ErrUnavailable, errBroken))
	}
}

func (l *link) mended() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.up:
	default:
		close(l.up)
	}
}

// denied fails the requests with a subject that the user has no right to.
func (l *link) denied(err error) {
	_, quoted, _ := strings.Cut(err.Error(), `"`)
	subject, _, found := strings.Cut(quoted, `"`)
	if !found || !errors.Is(err, nats.ErrPermissionViolation) {
		return
	}
	inboxes := strings.TrimSuffix(l.nc.NewRespInbox(), ".")
	if i := strings.LastIndexByte(inboxes, '.'); i >= 0 {
		inboxes = inboxes[:i+1]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for fail, subjects := range l.waiting {
		for _, s := range subjects {
			if s == subject {
				(*fail)(session.Refused(permissionError{subject, err}))
			} else if strings.HasPrefix(subject, inboxes) { // of the answers
				(*fail)(permissionError{subject, err})
			}
		}
	}
}

// guard returns a context that also ends, with the cause, when the connection
// breaks or one of the subjects is denied.
func (l *link) guard(ctx context.Context, subjects ...string) (context.Context, func()) {
	ctx, fail := context.WithCancelCause(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[&fail] = subjects
	return ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.waiting, &fail)
		fail(nil)
	}
}

// wait waits until there is a connection.
func (l *link) wait(ctx context.Context) error {
	l.mu.Lock()
	up := l.up
	l.mu.Unlock()
	select {
	case <-up:
		return nil
	case <-ctx.Done():
		return session.Refused(fmt.Errorf("%w: no connection: %w", driver.ErrUnavailable, ctx.Err()))
	}
}

// ask sends messages, and returns the answer to the last one.
func (l *link) ask(ctx context.Context, all ...*nats.Msg) (reply *nats.Msg, err error) {
	if err := l.wait(ctx); err != nil {
		return nil, err
	}
	var subjects []string
	for _, m := range all {
		subjects = append(subjects, m.Subject)
	}
	ctx, stop := l.guard(ctx, subjects...)
	defer stop()
	for i, m := range all {
		if i < len(all)-1 {
			err = l.nc.PublishMsg(m)
		} else {
			reply, err = l.nc.RequestMsgWithContext(ctx, m)
		}
		if err != nil {
			return nil, requestError(cmp.Or(context.Cause(ctx), err))
		}
	}
	return reply, nil
}

// dialer dials until its context ends. That also closes the connections.
type dialer struct {
	life context.Context
	of   nats.Options
}

func (d dialer) Dial(network, address string) (made net.Conn, err error) {
	ctx, cancel := context.WithTimeout(d.life, d.of.Timeout)
	defer cancel()
	switch {
	case d.of.CustomDialer != nil:
		made, err = d.of.CustomDialer.Dial(network, address)
	case d.of.Dialer != nil:
		made, err = d.of.Dialer.DialContext(ctx, network, address)
	default:
		made, err = new(net.Dialer).DialContext(ctx, network, address)
	}
	if err != nil {
		return nil, err
	}
	return &conn{made, context.AfterFunc(d.life, func() { _ = made.Close() })}, nil
}

type conn struct {
	net.Conn
	stop func() bool
}

func (c *conn) Close() error {
	c.stop()
	return c.Conn.Close()
}
