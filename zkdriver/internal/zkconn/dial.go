package zkconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// connectTo connects to a server, with TLS unless config is nil. The parameter
// every is the interval between the dials of dialAgain.
func connectTo(ctx context.Context, address string, config *tls.Config, every time.Duration) (net.Conn, error) {
	var dialer net.Dialer
	raw, err := dialAgain(ctx, every, func(ctx context.Context) (net.Conn, error) {
		return dialer.DialContext(ctx, "tcp", address)
	})
	if err != nil || config == nil {
		return raw, err
	}
	secure := tls.Client(raw, tlsFor(config, address))
	if err := secure.HandshakeContext(ctx); err != nil {
		raw.Close()
		var notTLS tls.RecordHeaderError
		if errors.Is(err, io.EOF) || errors.As(err, &notTLS) {
			return nil, fmt.Errorf("TLS: %w (the port may be a plain one)", err)
		}
		return nil, fmt.Errorf("TLS: %w", printableError{err})
	}
	return secure, nil
}

// dialAgain dials. As long as no dial has ended, it starts one more dial after
// each interval. It returns the result of the dial that ends first. The reason
// for further dials is this: if a network drops the packets of one dial, the
// operating system repeats them only after 1 s, 3 s and 7 s, which may be long
// after the network works again.
func dialAgain(ctx context.Context, interval time.Duration, dial func(context.Context) (net.Conn, error)) (net.Conn, error) {
	var dials sync.WaitGroup
	defer dials.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type dialed struct {
		conn net.Conn
		err  error
	}
	results := make(chan dialed)
	once := func() {
		conn, err := dial(ctx)
		select {
		case results <- dialed{conn, err}:
		case <-ctx.Done():
			if conn != nil {
				conn.Close()
			}
		}
	}
	dials.Go(once)
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case r := <-results:
			return r.conn, r.err
		case <-ctx.Done():
			return nil, fmt.Errorf("no connection: %w", ctx.Err())
		case <-ticker.C:
			dials.Go(once)
		}
	}
}
