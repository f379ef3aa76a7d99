package natsdriver

import (
	"cmp"
	"context"
	"encoding/json"
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

	mu    sync.Mutex
	now   context.Context    // guarded by mu; ends when answers may be missing
	fail  context.CancelFunc // guarded by mu; ends now
	heard time.Time          // guarded by mu; when a leader last answered, or the connection was made
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
	o.ClosedCB, o.DisconnectedCB, o.ConnectedCB, o.ReconnectedCB, o.DiscoveredServersCB, o.LameDuckModeHandler, o.ReconnectErrCB, o.ReconnectToServerCB = nil, nil, nil, nil, nil, nil, nil, nil
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
	l.heard = time.Now()
}

// guard returns a context that also ends when answers may be missing.
func (l *link) guard(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	stop := context.AfterFunc(l.now, cancel)
	return ctx, func() { stop(); cancel() }
}

// ask makes a request. The answer is JSON, and may have an error of JetStream.
func (l *link) ask(ctx context.Context, m *nats.Msg, answer any) error {
	for !l.IsConnected() {
		if !session.Sleep(ctx, 10*time.Millisecond) {
			return session.Refused(fmt.Errorf("%w: no connection: %w, after %v", driver.ErrUnavailable, ctx.Err(), l.LastError()))
		}
	}
	ctx, stop := l.guard(ctx)
	defer stop()
	before := l.LastError()
	reply, err := l.RequestMsgWithContext(ctx, m)
	if err != nil {
		return l.explain(err, m.Subject, before)
	}
	var failed struct{ Error *apiError }
	if err := json.Unmarshal(reply.Data, &failed); err != nil {
		return fmt.Errorf("%s: %w", m.Subject, err)
	}
	if err := failed.Error.mark(); err != nil {
		return err
	}
	return json.Unmarshal(reply.Data, answer)
}

// judge connects to another server if no answer to a request has come from a
// leader for long, because this server may be cut off from the others. It may
// also answer at once that there is no leader.
func (l *link) judge(err error) {
	answers := err == nil || errors.As(err, new(permissionError)) || errors.As(err, new(*apiError)) && !isCode(err, codeNoMeta, codeInProcess)
	l.mu.Lock()
	leave := !answers && time.Since(l.heard) > l.limit*3/4 && len(l.Servers()) > 1
	if answers || leave {
		l.heard = time.Now()
	}
	l.mu.Unlock()
	if leave {
		_ = l.ForceReconnect()
	}
}

// explain returns the error of a request without an answer. Before the request,
// the connection's last error was before.
func (l *link) explain(err error, subject string, before error) error {
	if denied := l.denied(subject, before); denied != nil {
		return session.Refused(denied)
	}
	inbox := l.NewRespInbox()
	if denied := l.denied(inbox[:strings.LastIndexByte(inbox, '.')]+".*", before); denied != nil {
		return denied // the answer is lost
	}
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return session.Refused(fmt.Errorf("the queue has too many nodes for the server's max_payload: %w", err))
	case errors.Is(err, nats.ErrNoResponders):
		return session.Refused(fmt.Errorf("%w: no stream listens, or JetStream is off: %w", driver.ErrUnavailable, err))
	case errors.Is(err, nats.ErrReconnectBufExceeded):
		return session.Refused(fmt.Errorf("%w: no connection: %w", driver.ErrUnavailable, err))
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err) // also if ForceReconnect has dropped a request that was sent
}

// denied returns an error if the user lacks the permission for a subject, as the
// server has said since the connection's last error was before.
func (l *link) denied(subject string, before error) error {
	if err := l.LastError(); err != before && errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), `"`+subject+`"`) {
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
