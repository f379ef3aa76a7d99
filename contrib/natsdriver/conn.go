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
	*nats.Conn
	end   context.CancelFunc // ends dials that are under way
	limit time.Duration      // of a request

	mu   sync.Mutex
	now  context.Context    // guarded by mu; ends when answers may be missing
	fail context.CancelFunc // guarded by mu; ends now
}

// dial connects to one of the servers.
func dial(ctx context.Context, s *settings) (*link, error) {
	o, err := s.options()
	if err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.Background())
	defer context.AfterFunc(ctx, end)()
	l := &link{end: end, limit: s.requestTime(), fail: func() {}}
	l.renew()
	o.Name = cmp.Or(o.Name, "dlock")
	o.CustomDialer = dialer{life, o}
	o.AllowReconnect, o.MaxReconnect, o.RetryOnFailedConnect, o.IgnoreAuthErrorAbort = true, -1, false, true
	o.ReconnectWait, o.ReconnectJitter, o.ReconnectJitterTLS = 100*time.Millisecond, 100*time.Millisecond, 100*time.Millisecond
	o.ReconnectBufSize = -1 // nothing is sent later than asked
	o.Timeout, o.PingInterval, o.MaxPingsOut = max(s.timeout/8, time.Second), s.timeout/4, 1
	o.UseOldRequestStyle, o.CustomReconnectDelayCB = false, nil
	o.ClosedCB, o.DisconnectedCB, o.ConnectedCB, o.ReconnectedCB, o.DiscoveredServersCB, o.LameDuckModeHandler, o.ReconnectErrCB = nil, nil, nil, nil, nil, nil, nil
	o.DisconnectedErrCB = func(*nats.Conn, error) { l.renew() }
	o.AsyncErrorCB = func(*nats.Conn, *nats.Subscription, error) { l.renew() }
	if l.Conn, err = o.Connect(); err != nil {
		end()
		return nil, err
	}
	return l, nil
}

func (l *link) close() {
	l.Close()
	l.end()
}

// renew fails the requests under way, because the connection broke or the server
// has refused something.
func (l *link) renew() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail()
	l.now, l.fail = context.WithCancel(context.Background())
}

// guard returns a context that also ends when answers may be missing.
func (l *link) guard(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	stop := context.AfterFunc(l.now, cancel)
	return ctx, func() { stop(); cancel() }
}

// ask makes a request. It has a time limit even if that of the engine has none.
func (l *link) ask(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, l.limit)
	defer cancel()
	for !l.IsConnected() {
		if !session.Sleep(ctx, 10*time.Millisecond) {
			return nil, session.Refused(fmt.Errorf("%w: no connection: %w", driver.ErrUnavailable, ctx.Err()))
		}
	}
	ctx, stop := l.guard(ctx)
	defer stop()
	sent := time.Now()
	reply, err := l.RequestMsgWithContext(ctx, m)
	if err != nil {
		if time.Since(sent) > l.limit*3/4 && len(l.Servers()) > 1 { // this server may be cut off from the others
			_ = l.ForceReconnect()
		}
		err = l.explain(err, m.Subject)
	}
	return reply, err
}

// explain returns the error of a request without an answer.
func (l *link) explain(err error, subject string) error {
	if denied := l.denied(subject); denied != nil {
		return session.Refused(denied)
	}
	inbox := l.NewRespInbox()
	if denied := l.denied(inbox[:strings.LastIndexByte(inbox, '.')] + ".*"); denied != nil {
		return denied // the answer is lost
	}
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return session.Refused(fmt.Errorf("the queue has too many nodes for the server's max_payload: %w", err))
	case errors.Is(err, nats.ErrNoResponders):
		return session.Refused(fmt.Errorf("%w: no stream listens, or JetStream is off: %w", driver.ErrUnavailable, err))
	case errors.Is(err, nats.ErrReconnectBufExceeded), errors.Is(err, nats.ErrConnectionClosed):
		return session.Refused(fmt.Errorf("%w: no connection: %w", driver.ErrUnavailable, err))
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

// denied returns an error if the user lacks the permission for a subject.
func (l *link) denied(subject string) error {
	if err := l.LastError(); errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), `"`+subject+`"`) {
		return permissionError{subject, err}
	}
	return nil
}

// dialer dials until its context ends. That also closes the connections.
type dialer struct {
	life context.Context
	of   nats.Options
}

func (d dialer) Dial(network, address string) (made net.Conn, err error) {
	if d.of.CustomDialer != nil {
		made, err = d.of.CustomDialer.Dial(network, address)
	} else {
		made, err = (&net.Dialer{Timeout: d.of.Timeout}).DialContext(d.life, network, address)
	}
	if err == nil {
		context.AfterFunc(d.life, func() { _ = made.Close() })
	}
	return made, err
}
