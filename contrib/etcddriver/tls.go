package etcddriver

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"

	"google.golang.org/grpc/credentials"

	"github.com/dlock-go/dlock/driver/dsn"
)

// renewed reads the certificate files for each connection. A configured server
// name replaces the host when any server's certificate is verified.
type renewed struct {
	credentials.TransportCredentials
	settings *settings
}

func (r renewed) ClientHandshake(ctx context.Context, host string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config, err := r.settings.loadTLS()
	if err != nil {
		return nil, nil, err
	}
	return credentials.NewTLS(config).ClientHandshake(ctx, cmp.Or(config.ServerName, host), conn)
}

func (r renewed) Clone() credentials.TransportCredentials { return r }

// refusedCertificate tries a TLS handshake with each server, because gRPC's
// error may say only that the connection broke.
func (s *settings) refusedCertificate(ctx context.Context) error {
	config, err := s.loadTLS()
	if err != nil || config == nil {
		return nil
	}
	config.NextProtos = []string{"h2"}
	ctx, cancel := context.WithTimeout(ctx, s.requestTimeout())
	defer cancel()
	for _, endpoint := range s.endpoints {
		if err := handshake(ctx, endpoint, config); dsn.Untrusted(err) {
			return err
		}
	}
	return nil
}

// handshake also reads one byte, because only that shows that the server
// accepts the client's certificate.
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
