package etcddriver

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
)

// certificateError is an error of certificates or their files, which a retry does not
// change as long as the files stay the same.
type certificateError struct{ error }

func (e certificateError) Unwrap() error { return e.error }

// namedServer expects one name in the certificate of every server. The client library
// would expect the host of each endpoint, and would ignore tls.Config.ServerName.
type namedServer struct {
	credentials.TransportCredentials
	name string
}

func (n namedServer) ClientHandshake(ctx context.Context, _ string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return n.TransportCredentials.ClientHandshake(ctx, n.name, conn)
}

func (n namedServer) Clone() credentials.TransportCredentials {
	return namedServer{n.TransportCredentials.Clone(), n.name}
}

// refusedCertificate returns the error of the first server with which a TLS connection
// fails because either side refuses a certificate, or nil. gRPC may report only that
// the connection broke, because a server refuses a client's certificate after the
// client's side of the handshake.
func (s *settings) refusedCertificate(ctx context.Context) error {
	config, err := s.loadTLS()
	if err != nil || config == nil {
		return nil
	}
	config.NextProtos = []string{"h2"}
	ctx, cancel := context.WithTimeout(ctx, s.requestTimeout())
	defer cancel()
	for _, endpoint := range s.endpoints {
		if err := handshake(ctx, endpoint, config); isRefusal(err) {
			return certificateError{err}
		}
	}
	return nil
}

// handshake connects, and waits for the first byte that the server sends after the
// handshake. The byte shows that the server has accepted the client's certificate.
func handshake(ctx context.Context, endpoint string, config *tls.Config) error {
	conn, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", endpoint)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	_, err = conn.Read(make([]byte, 1))
	return err
}

func isRefusal(err error) bool {
	if errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(tls.RecordHeaderError)) {
		return true
	}
	remote := (*net.OpError)(nil)
	return errors.As(err, &remote) && remote.Op == "remote error" // the server has sent a TLS alert
}
