package natsdriver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/session"
)

// link is one connection of a session.
type link struct {
	*nats.Conn
	addr  string        // of the server, if others are known
	limit time.Duration // of a request

	mu    sync.Mutex
	heard time.Time // guarded by mu; when a leader last answered, or the connection was made
}

// dial connects to one of the servers in the settings or in found, but not to
// the address avoid. The connection closes when the server refuses something,
// so that no request waits for an answer that does not come.
func dial(ctx context.Context, s *settings, found []string, avoid string) (*link, error) {
	o, err := s.options(ctx)
	if err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.Background())
	defer context.AfterFunc(ctx, end)()
	l := &link{limit: s.requestTime(), heard: time.Now()}
	o.Servers = slices.Concat(o.Servers, found)
	o.Name = cmp.Or(o.Name, "dlock")
	o.CustomDialer = dialer{life, o, avoid}
	o.AllowReconnect, o.RetryOnFailedConnect, o.UseOldRequestStyle, o.NoCallbacksAfterClientClose = false, false, false, false
	o.Timeout, o.PingInterval, o.MaxPingsOut = max(s.timeout/8, time.Second), s.timeout/4, 1
	o.DisconnectedErrCB, o.DisconnectedCB, o.ConnectedCB, o.DiscoveredServersCB, o.LameDuckModeHandler = nil, nil, nil, nil, nil
	o.ClosedCB = func(*nats.Conn) { end() }
	o.AsyncErrorCB = func(nc *nats.Conn, _ *nats.Subscription, _ error) { nc.Close() }
	if l.Conn, err = o.Connect(); err != nil {
		end()
		return nil, err
	}
	if len(l.Servers()) > 1 {
		l.addr = l.ConnectedAddr()
	}
	return l, nil
}

// ask makes a request. The answer is JSON, and may be an error of JetStream.
func (l *link) ask(ctx context.Context, m *nats.Msg, answer any) error {
	reply, err := l.RequestMsgWithContext(ctx, m)
	if err != nil {
		return l.explain(err, m.Subject)
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

// judge closes the connection if no leader has answered a request for long,
// because the server may be cut off from the others. Such a server may also
// answer at once that there is no leader.
func (l *link) judge(err error) {
	answers := err == nil || errors.As(err, new(permissionError)) || errors.As(err, new(*apiError)) && !isCode(err, codeNoMeta, codeInProcess)
	l.mu.Lock()
	if answers {
		l.heard = time.Now()
	}
	leave := time.Since(l.heard) > l.limit*3/4 && l.addr != ""
	l.mu.Unlock()
	if leave {
		l.Close()
	}
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
	}
	return fmt.Errorf("%w: %w", driver.ErrUnavailable, err)
}

// denied returns an error if the server has said that the user lacks the
// permission for a subject.
func (l *link) denied(subject string) error {
	if err := l.LastError(); errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), `"`+subject+`"`) {
		return permissionError{fmt.Errorf("the user lacks a permission for the subject %s, see the package documentation of natsdriver: %w", subject, err)}
	}
	return nil
}

// dialer dials until its context ends, which also closes the connections.
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
