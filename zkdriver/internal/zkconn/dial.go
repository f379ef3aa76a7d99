package zkconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver/dsn"
)

// connectTo reads the TLS files for each connection, because certificates are
// renewed while sessions exist.
func (d *dialer) connectTo(ctx context.Context, host string) (net.Conn, error) {
	config, err := d.config.TLS.Load()
	if err != nil {
		return nil, err
	}
	raw, err := d.dialAddress(ctx, host)
	if err != nil || config == nil {
		return raw, err
	}
	secure := tls.Client(raw, tlsFor(config, host))
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

// dialAddress tries addresses in changing order: a server may accept
// connections without serving them.
func (d *dialer) dialAddress(ctx context.Context, host string) (net.Conn, error) {
	addresses, err := d.lookUp(ctx, host)
	if err != nil {
		return nil, err
	}
	var first error
	for _, address := range addresses {
		d.dialled(host, address)
		conn, err := dialAgain(ctx, d.redialInterval(), func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		})
		if err == nil {
			return conn, nil
		}
		first = cmp.Or(first, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, first
}

// lookUp resolves a host's addresses again, or falls back to the known ones.
// New addresses come first, the most recently dialled one last.
func (d *dialer) lookUp(ctx context.Context, host string) ([]string, error) {
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	known := d.known[host]
	d.mu.Unlock()
	if deadline, limited := ctx.Deadline(); limited && len(known) > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2) // leave the other half for the dial
		defer cancel()
	}
	found, err := d.config.resolve(ctx, name)
	if err != nil || len(found) == 0 {
		if len(known) > 0 {
			return known, nil
		}
		return nil, cmp.Or(err, fmt.Errorf("%s has no address", name))
	}
	for i, address := range found {
		found[i] = net.JoinHostPort(address, port)
	}
	shuffle(found)
	slices.SortStableFunc(found, func(a, b string) int {
		return cmp.Compare(slices.Index(known, a), slices.Index(known, b)) // a new address has index -1
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known[host] = found
	most := 0
	for _, addresses := range d.known {
		most = max(most, len(addresses))
	}
	d.round.Store(int64(most * len(d.hosts)))
	return slices.Clone(found), nil
}

func (d *dialer) dialled(host, address string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rest := slices.DeleteFunc(slices.Clone(d.known[host]), func(a string) bool { return a == address })
	d.known[host] = append(rest, address)
}

// dialAgain dials again after each interval: operating systems resend lost
// packets too late.
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

// TLS configures the encryption of connections. The zero value means none.
type TLS struct {
	On     bool
	Files  dsn.TLS
	Config *tls.Config // if set, replaces the files
}

// Load reads the TLS files again. It returns nil if TLS is off.
func (t TLS) Load() (*tls.Config, error) {
	if !t.On {
		return nil, nil
	}
	if t.Config != nil {
		c := t.Config.Clone()
		if t.Files.ServerName != "" {
			c.ServerName = t.Files.ServerName
		}
		return c, nil
	}
	c, err := t.Files.Config()
	if err != nil {
		return nil, fmt.Errorf("zkdriver: %w", printableError{err})
	}
	return c, nil
}

// tlsFor sets the name that the host's certificate must have, if none is set.
func tlsFor(c *tls.Config, address string) *tls.Config {
	if c.ServerName != "" {
		return c
	}
	c = c.Clone()
	c.ServerName, _, _ = net.SplitHostPort(address)
	return c
}

// certificateRefused reports whether one side refused the other's certificate.
func certificateRefused(err error) bool {
	var verification *tls.CertificateVerificationError
	var alert *net.OpError // how crypto/tls reports an alert from the peer
	return errors.As(err, &verification) || errors.As(err, &alert) && alert.Op == "remote error"
}
