package diagnose

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/dsn"
)

// host is a server of the store and what the checks have found out about it. A
// host whose err is set is skipped by later checks.
type host struct {
	hostPort, name, port string
	addresses            []string // host:port of each address
	state                string   // what the current check found
	err                  error
}

// network makes the checks that need no session. It reports whether a session
// is worth trying.
func (r *run) network(ctx context.Context) bool {
	if len(r.Hosts) == 0 {
		where := r.Local
		if where == "" {
			where = "a store that this driver does not describe"
		}
		r.ok(driver.CheckResolve, "no host: %s", where)
		r.ok(driver.CheckConnect, "no network connection")
		r.ok(driver.CheckTLS, "no network connection")
		return true
	}
	hosts := make([]*host, len(r.Hosts))
	for i, h := range r.Hosts {
		name, port, err := net.SplitHostPort(h)
		hosts[i] = &host{hostPort: h, name: name, port: port, err: err}
	}
	for _, step := range []struct {
		check driver.Check
		do    func(ctx context.Context, h *host)
	}{{driver.CheckResolve, r.resolve}, {driver.CheckConnect, r.connect}, {driver.CheckTLS, r.secure}} {
		if step.check == driver.CheckTLS && r.TLS == nil {
			r.plain(hosts)
			continue
		}
		r.each(ctx, hosts, step.do)
		if !r.outcome(step.check, hosts) {
			return false
		}
		hosts = slices.DeleteFunc(hosts, func(h *host) bool { return h.err != nil })
	}
	return true
}

// each runs a check for all hosts concurrently, and waits for the results.
func (r *run) each(ctx context.Context, hosts []*host, check func(ctx context.Context, h *host)) {
	ctx, cancel := context.WithTimeout(ctx, r.limit)
	defer cancel()
	var all sync.WaitGroup
	for _, h := range hosts {
		if h.err == nil {
			all.Go(func() { check(ctx, h) })
		}
	}
	all.Wait()
}

// outcome reports the findings of a check for all hosts. It returns whether at
// least one host has passed.
func (r *run) outcome(check driver.Check, hosts []*host) bool {
	level := driver.Problem
	if slices.ContainsFunc(hosts, func(h *host) bool { return h.err == nil }) {
		level = driver.Warning // clients use the other hosts
	}
	var good []string
	for _, h := range hosts {
		if h.err == nil {
			good = append(good, h.state)
			continue
		}
		r.report(driver.Finding{Check: check, Level: level, Text: h.hostPort + ": " + h.err.Error(), Advice: advice(check, h.err)})
	}
	if len(good) > 0 {
		r.ok(check, "%s", strings.Join(good, "; "))
	}
	return len(good) > 0
}

func (r *run) resolve(ctx context.Context, h *host) {
	found, err := net.DefaultResolver.LookupHost(ctx, h.name)
	if err == nil && len(found) == 0 {
		err = errors.New("the name has no address")
	}
	for _, a := range found {
		h.addresses = append(h.addresses, net.JoinHostPort(a, h.port))
	}
	h.state, h.err = h.name+" is "+strings.Join(found, ", "), err
	if slices.Equal(found, []string{h.name}) {
		h.state = h.name
	}
}

// connect dials the addresses in turn, as clients do.
func (r *run) connect(ctx context.Context, h *host) {
	for i, address := range h.addresses {
		began := time.Now()
		dialer := net.Dialer{Timeout: r.limit / time.Duration(len(h.addresses))}
		conn, err := dialer.DialContext(ctx, "tcp", address)
		if err == nil {
			conn.Close()
			h.addresses = h.addresses[i:]
			h.state = fmt.Sprintf("%s answers in %v", address, time.Since(began).Round(100*time.Microsecond))
			h.err = nil
			return
		}
		h.err = err
	}
}

func (r *run) secure(ctx context.Context, h *host) {
	config, err := r.TLS(h.name)
	if err != nil {
		h.err = err
		return
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", h.addresses[0])
	if err != nil {
		h.err = err
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if r.StartTLS != nil {
		err := r.StartTLS(conn)
		if errors.Is(err, ErrNoTLS) && r.OptionalTLS {
			h.state = h.hostPort + " has no TLS, and the connections go on without"
			return
		}
		if err != nil {
			h.err = silent(ctx, err)
			return
		}
	}
	config, asked := noteRequest(config)
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		h.err = silent(ctx, err)
		return
	}
	if *asked {
		if h.err = refusal(secure); h.err != nil {
			return
		}
	}
	state := secure.ConnectionState()
	leaf := state.PeerCertificates[0]
	h.state = fmt.Sprintf("%s has %s, and a certificate until %s", h.hostPort, tls.VersionName(state.Version), leaf.NotAfter.Format(time.DateOnly))
	r.expires("the certificate of "+h.hostPort, leaf)
	if len(config.Certificates) > 0 {
		if own, err := x509.ParseCertificate(config.Certificates[0].Certificate[0]); err == nil {
			r.expires("the certificate of this client", own)
		}
	}
	if config.InsecureSkipVerify && config.VerifyPeerCertificate == nil && config.VerifyConnection == nil && !loopback(h.addresses[0]) {
		r.report(driver.Finding{Check: driver.CheckTLS, Level: driver.Warning, Text: h.hostPort + ": the certificate of the server is not verified",
			Advice: "turn the verification on, and name the authority of the certificate: otherwise anyone in between can take and release locks"})
	}
}

// noteRequest returns a copy of config that sets *asked if the server requests
// a client certificate during the handshake.
func noteRequest(config *tls.Config) (_ *tls.Config, asked *bool) {
	asked = new(bool)
	config = config.Clone()
	choose := config.GetClientCertificate
	config.GetClientCertificate = func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		*asked = true
		if choose != nil {
			return choose(info)
		}
		for _, c := range config.Certificates {
			if info.SupportsCertificate(&c) == nil {
				return &c, nil
			}
		}
		return new(tls.Certificate), nil
	}
	return config, asked
}

// refusal returns the alert sent by a server that rejects the client
// certificate, or nil. With TLS 1.3, the alert arrives only after the
// handshake. A server that accepts the certificate sends nothing, or the first
// message of its protocol.
func refusal(conn *tls.Conn) error {
	if err := conn.SetReadDeadline(time.Now().Add(refusalTime)); err != nil {
		return err
	}
	var alert *net.OpError
	if _, err := conn.Read(make([]byte, 1)); errors.As(err, &alert) && alert.Op == "remote error" {
		return err
	}
	return nil
}

const refusalTime = 500 * time.Millisecond

// soon is how long before its expiry a certificate causes a warning.
const soon = 14 * 24 * time.Hour

func (r *run) expires(what string, c *x509.Certificate) {
	if time.Until(c.NotAfter) < soon {
		r.report(driver.Finding{Check: driver.CheckTLS, Level: driver.Warning,
			Text: fmt.Sprintf("%s expires on %s", what, c.NotAfter.UTC().Format("2006-01-02 15:04 MST")), Advice: "renew it"})
	}
}

// silent makes the error of a failed TLS handshake clearer if the server did
// not answer or closed the connection.
func silent(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return errors.New("no answer to the TLS handshake")
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return fmt.Errorf("the server closed the connection in the TLS handshake: %w", err)
	}
	return err
}

// plain reports what others can read if connections are not encrypted.
func (r *run) plain(hosts []*host) {
	switch remote := slices.ContainsFunc(hosts, func(h *host) bool { return !loopback(h.addresses[0]) }); {
	case !remote:
		r.ok(driver.CheckTLS, "off, and the connections do not leave this machine")
	case r.Password:
		r.report(driver.Finding{Check: driver.CheckTLS, Level: driver.Warning,
			Text:   "off, although a password is sent: everyone on the way can read it",
			Advice: "turn TLS on in the server and in the data source name, unless the network is encrypted or trusted"})
	default:
		r.ok(driver.CheckTLS, "off")
	}
}

func loopback(address string) bool {
	a, err := netip.ParseAddrPort(address)
	return err == nil && a.Addr().IsLoopback()
}

// advice says what to do if the check of a host has failed.
func advice(check driver.Check, err error) string {
	switch {
	case check == driver.CheckResolve:
		return "correct the host in the data source name, or the name service of this machine"
	case check == driver.CheckTLS:
		if a := tlsAdvice(err); a != "" {
			return a
		}
		return "check that this port speaks TLS; if not, turn TLS off in the data source name, or use the port for TLS"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "start the server, or correct the port in the data source name"
	}
	return "check the address in the data source name, the network, and the firewalls in between"
}

// tlsAdvice says what to do about a refused certificate, or returns an empty
// text for other errors.
func tlsAdvice(err error) string {
	var (
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
		header    tls.RecordHeaderError
		alert     tls.AlertError
		remote    *net.OpError
		file      *dsn.FileError
	)
	switch {
	case errors.As(err, &file), errors.Is(err, os.ErrNotExist):
		return "correct the files that the tls_ parameters of the data source name give"
	case errors.As(err, &authority):
		return "give the file of the authority that has signed the server's certificate, by the parameter tls_ca (sslrootcert with PostgreSQL)"
	case errors.As(err, &name):
		return "write a host in the data source name that the certificate has, or give the name that it has as tls_server_name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "renew the certificate of the server, or correct the clock of this machine"
	case errors.As(err, &invalid):
		return "give the server a certificate that is valid for servers"
	case errors.As(err, &header):
		return "the port answers without TLS: turn TLS off in the data source name, or use the port for TLS"
	case errors.As(err, &alert), errors.As(err, &remote) && remote.Op == "remote error":
		return "the server refuses this client's certificate or its settings of TLS: give a client certificate that the server trusts"
	}
	return ""
}
